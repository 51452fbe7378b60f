"""Mistakes of a configuration file that its table of keys does not show, with the line and the key."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from momostream.cli.models import parse_settings

if TYPE_CHECKING:
    from ssl import SSLContext

    from momostream.cli.run import RunRequest
    from momostream.serve.config import Farm

__all__ = ["check_models_and_files", "errors_with_lines", "tls_of"]

# How messages name an option of the command line, and the keys that do not have its name.
_OPTION = re.compile(r"--(?:set (?P<parameter>\w+)=|(?P<option>[a-z-]+))|(?P<feed>FEED)\b")
_KEYS = {"target": "targets", "input": "inputs"}


@contextmanager
def errors_with_lines(farm: Farm, feed: str) -> Iterator[None]:
    """Name the line and the key of an option of this feed that is wrong."""
    try:
        yield
    except (ValueError, OSError) as error:
        raise farm.error(("feeds", feed, *_key_of(str(error))), str(error)) from None


def _key_of(message: str) -> tuple[str, ...]:
    """The key that a message of the command line is about; empty if it names none.

    Examples
    --------
    >>> _key_of("--set max_point=5: there is no such parameter"), _key_of("--dead-letters kafka://db needs --store")
    (('model', 'max_point'), ('dead_letters',))
    """
    found = _OPTION.search(message)
    if found is None:
        return ()
    if found["parameter"]:
        return "model", found["parameter"]
    return ("source",) if found["feed"] else (_KEYS.get(found["option"], found["option"].replace("-", "_")),)


def tls_of(farm: Farm) -> SSLContext | None:
    """Certificate and key of the server; None if it serves by HTTP."""
    from momostream.feeds.secrets import server_tls_context

    certificate, key = farm.serve.certificate, farm.serve.private_key
    if certificate is None:
        if key is not None:
            raise farm.error(("serve", "private_key"), "needs certificate, the file with the certificate of this key")
        return None
    try:
        return server_tls_context(farm.path(certificate), None if key is None else farm.path(key))
    except (ValueError, OSError) as error:
        raise farm.error(("serve", "certificate"), str(error)) from None


def check_models_and_files(farm: Farm, requests: Mapping[str, RunRequest]) -> None:
    """Find what a start would find out later: files that are missing, and values that models do not accept."""
    from momostream.feeds.brokers import is_remote
    from momostream.runs.lookout import ForecastRule
    from momostream.runs.plan import Plan, make_model

    for key in ("read_token_file", "write_token_file"):
        file = getattr(farm.serve, key)
        if file is not None and not farm.path(file).is_file():
            raise farm.error(("serve", key), f"{farm.path(file)} does not exist")
    tls_of(farm)
    for feed in farm.feeds:
        request, path = requests[feed.name], ("feeds", feed.name)
        if not feed.is_pushed and not is_remote(request.feed) and not Path(request.feed).exists():
            raise farm.error((*path, "source"), f"{request.feed} does not exist")
        if not feed.targets:
            # All columns: they are known when rows are read.
            continue
        time = None if feed.time == "none" else feed.time
        try:
            plan = Plan(feed.targets, feed.inputs, time, feed.horizon, feed.level, feed.every, feed.key)
            make_model(plan, parse_settings(request.model, feed.horizon))
        except ValueError as error:
            name = next(iter(re.findall(r"\w+", str(error))), "")
            where = ("model", name) if name in feed.model else (name,) if name in vars(feed) else ()
            raise farm.error((*path, *where), str(error)) from None
        for text in feed.alarm:
            try:
                ForecastRule.read(text, plan)
            except ValueError as error:
                raise farm.error((*path, "alarm"), str(error)) from None
