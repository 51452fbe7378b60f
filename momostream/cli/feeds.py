"""Open the feed that a command names: files, folders, standard input, brokers."""

from __future__ import annotations

import difflib
import os
import re
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from momostream.cli.messages import notify
from momostream.cli.options import BadRows, Columns, FileFormat

if TYPE_CHECKING:
    from momostream.feeds import Feed, Folder
    from momostream.feeds.parquet import ParquetFeed
    from momostream.runs.plan import Plan

__all__ = [
    "check_extent",
    "columns_to_read",
    "errors_named_after",
    "limited",
    "open_broker",
    "open_checked",
    "open_files",
    "plan_for",
    "without_password",
]


def columns_to_read(columns: Columns) -> tuple[str, ...] | None:
    """Columns that are read; None if the feed decides, because not all of them are named."""
    targets, inputs = columns.target or [], columns.input or []
    if not targets and columns.horizon is None:
        raise ValueError("nothing to predict: name columns with --target, or rows to forecast with --horizon")
    all_named = bool(targets) and (bool(inputs) or columns.horizon is not None)
    return (*targets, *inputs) if all_named else None


def open_files(
    feed: str,
    columns: tuple[str, ...] | None,
    time: str | None,
    file_format: FileFormat,
    bad_rows: BadRows,
    key: str | None = None,
    follow: bool = False,
    notes: bool = True,
) -> Feed | Folder | ParquetFeed:
    """Open a file, a folder, or standard input; without ``notes``, bad rows are not reported."""
    from momostream.feeds import Feed, FeedError, Folder
    from momostream.feeds.folders import open_parquet
    from momostream.feeds.parquet import is_parquet

    options: dict[str, Any] = {
        "bad_rows": bad_rows.value, "on_bad": notify if notes else _ignore, "encoding": file_format.encoding,
        "delimiter": file_format.delimiter, "decimal": file_format.decimal.value,
        "time_format": file_format.time_format,
    }  # fmt: skip
    if feed != "-" and os.path.isdir(feed):
        return Folder(feed, columns, time, key=key, follow=follow, **options)
    if is_parquet(feed):
        if follow:
            raise FeedError(f"{feed}: a Parquet file cannot be followed: follow its folder, or read it to its end")
        return open_parquet(Path(feed), columns, time, key, options)
    return Feed(feed, columns, time, key=key, follow=follow, **options)


def _ignore(message: str) -> None:
    """Do nothing: the message comes again when the rows are taken."""


def open_checked(
    feed: str,
    columns: Columns,
    file_format: FileFormat,
    bad_rows: BadRows,
    key: str | None = None,
    follow: bool = False,
) -> Feed | Folder | ParquetFeed:
    """Open files, and check that they have rows and the named columns."""
    time = None if columns.time == "none" else columns.time
    opened = open_files(feed, columns_to_read(columns), time, file_format, bad_rows, key, follow)
    try:
        _check_columns(opened, columns)
    except ValueError:
        opened.close()
        raise
    if opened.unread_time is not None:
        notify(
            f"{opened.name}: cannot read the times in column {opened.unread_time!r}, rows are numbered instead: "
            "set --time-format"
        )
    return opened


def _check_columns(feed: Feed | Folder | ParquetFeed, columns: Columns) -> None:
    from momostream.feeds import FeedError

    if not feed.readings:
        raise FeedError(f"{feed.name}: has no rows")
    for name in (*(columns.target or ()), *(columns.input or ())):
        if name not in feed.readings:
            reason = "contains no numbers in the first rows" if name in feed.columns else "does not exist"
            near = difflib.get_close_matches(name, feed.readings, 1)
            hint = f": did you mean {near[0]!r}?" if near else ""
            raise FeedError(f"{feed.name}: column {name!r} {reason}{hint}")


def open_broker(
    url: str, columns: Columns, time_format: str | None, key: str | None, sequence: str | None, reader: str
) -> Any:
    """Open the feed of a broker or an OPC UA server; ``reader`` distinguishes runs that read the same topic."""
    from momostream.feeds import brokers
    from momostream.feeds.opcua import OpcUaFeed, is_opcua

    names = columns_to_read(columns)
    if names is None:
        raise ValueError(
            f"{without_password(url)}: the columns of a broker cannot be detected: name all with --target and --input"
        )
    if is_opcua(url):
        check_sequence(sequence)
        if columns.time not in {"auto", "time"}:
            raise ValueError(f"--time {columns.time}: values of OPC UA have times of their own")
        return OpcUaFeed(url, names, key=key, on_trouble=notify)
    options: dict[str, Any] = {"key": key, "time_format": time_format, "on_trouble": notify}
    time = None if columns.time == "none" else columns.time
    if url.lower().startswith("kafka"):
        check_sequence(sequence)
        return brokers.KafkaFeed(url, names, time, **options)
    if sequence is None and "{column}" not in url:
        notify(f"{without_password(url)}: without --sequence, a row may be learnt twice after a crash")
    # One client name for each reader: a second client of the same name would take its messages. Passwords and hosts
    # may change.
    topic = url.partition("://")[2].partition("/")[2]
    client = None if "client_id=" in url else f"momostream-{zlib.crc32(f'{topic} {reader}'.encode()):08x}"
    return brokers.MqttFeed(url, names, time, sequence=sequence, client_id=client, **options)


def check_sequence(sequence: str | None) -> None:
    """Reject --sequence for feeds that are not those of MQTT."""
    if sequence is not None:
        raise ValueError("--sequence works with mqtt:// feeds only")


def without_password(text: str) -> str:
    """A path or URL without the password in it; Kafka has it among its settings.

    Examples
    --------
    >>> without_password("mqtt://me:secret@host/rows"), without_password("kafka://host/rows?sasl.password=secret")
    ('mqtt://host/rows', 'kafka://host/rows')
    """
    return re.sub(r"([a-z.]+://[^?]*)\?.*", r"\1", re.sub(r"//[^/@]*@", "//", text), flags=re.IGNORECASE)


def check_extent(start: str | None, last: int | str | None, has_end: bool = True) -> None:
    """Reject --start and --last that cannot be used, before anything is opened."""
    from momostream.feeds.extent import read_start

    if start is not None:
        read_start(start)
    if last is not None and not has_end:
        raise ValueError(f"--last {last}: only files and folders have an end that can be looked at: use --start")


def limited(feed: Any, start: str | None, last: int | str | None, again: Callable[[], Any] | None) -> Any:
    """The part of a feed that --start and --last name; ``again`` opens it once more, for the latter."""
    if start is None and last is None:
        return feed
    from momostream.feeds.extent import Extent, read_start

    return Extent(feed, None if start is None else read_start(start), last, again)


def plan_for(feed: Any, columns: Columns, level: float = 0.9, every: int | str = 1, key: str | None = None) -> Plan:
    """The plan of a run: columns that are not named come from the feed."""
    from momostream.runs.plan import Plan

    named = (*(columns.target or ()), *(columns.input or ()))
    others = tuple(name for name in feed.readings if name not in named)
    targets, inputs = tuple(columns.target or ()), tuple(columns.input or ())
    if not targets:
        targets, others = others, ()
    if not inputs and columns.horizon is None:
        inputs = others
    return Plan(targets, inputs, feed.time, columns.horizon, level, every, key)


@contextmanager
def errors_named_after(feed: Any) -> Iterator[None]:
    """Begin each error with the name of the feed."""
    from momostream.feeds import FeedError

    try:
        yield
    except FeedError:
        raise
    except ValueError as error:
        raise FeedError(f"{feed.name}: {error}") from error
