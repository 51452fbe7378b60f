"""Outlets by URL: brokers, databases and time series over HTTP, to which a store hands its lines."""

from __future__ import annotations

from momostream.feeds import brokers
from momostream.feeds.influx import InfluxOutlet, is_influx
from momostream.feeds.messages import Outlet, Trouble
from momostream.feeds.postgres import PostgresOutlet, is_postgres

__all__ = ["is_database", "is_outlet", "open_outlet"]


def is_database(target: str) -> bool:
    """Whether a path or URL is that of an outlet that takes lines apart, so that they must be JSON.

    Examples
    --------
    >>> is_database("postgresql://localhost/plant"), is_database("mqtt://localhost/rows")
    (True, False)
    """
    return is_postgres(target) or is_influx(target)


def is_outlet(target: str) -> bool:
    """Whether a path or URL is that of an outlet.

    Examples
    --------
    >>> is_outlet("mqtt://localhost/rows"), is_outlet("postgresql://localhost/plant"), is_outlet("rows.csv")
    (True, True, False)
    """
    return brokers.is_broker(target) or is_database(target)


def open_outlet(url: str, kind: str, store: str, *, on_trouble: Trouble | None = None) -> Outlet:
    """The outlet of a URL for one kind of lines, a table of the store with this identity."""
    if is_postgres(url):
        return PostgresOutlet(url, kind, store, on_trouble=on_trouble)
    if is_influx(url):
        return InfluxOutlet(url, kind, on_trouble=on_trouble)
    return brokers.open_outlet(url, on_trouble=on_trouble)
