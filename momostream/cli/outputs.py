"""Destinations of a run: files, standard output, brokers, its store."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from momostream.cli.feeds import without_password
from momostream.cli.messages import notify
from momostream.cli.models import must_agree
from momostream.cli.options import LineFormat

if TYPE_CHECKING:
    from momostream.runs.run import Channel, Run

__all__ = ["STORE", "check_new", "check_paths", "check_store_for", "open_channels"]

#: Destination of lines that stay in the store of the run.
STORE = "store"


def check_paths(paths: Mapping[str, str | Path | None]) -> None:
    """Check, by option, that each file can be written and that none is used twice: the feed must not be overwritten."""
    from momostream.feeds.outlets import is_outlet

    used: dict[str, str] = {}
    folder: str | None = None
    for option, name in paths.items():
        if name is None or str(name) in {"-", STORE} or is_outlet(str(name)):
            continue
        path = os.path.realpath(name)
        if option == "FEED" and os.path.isdir(path):
            folder = path
            continue
        _check_path(option, str(name), path, folder)
        # A device may be read and written at once.
        if path in used and not _is_special(path):
            raise ValueError(f"{name}: is used for both {used[path]} and {option}: choose another file")
        used[path] = option


def _check_path(option: str, name: str, path: str, feed_folder: str | None) -> None:
    if os.path.dirname(path) == feed_folder:
        raise ValueError(f"{name}: is in the folder that is read: choose another folder")
    if option != "FEED" and not os.path.isdir(os.path.dirname(path)):
        raise ValueError(f"{name}: the folder does not exist")
    if option in {"--save", "--store", "--report"} and _is_special(path):
        raise ValueError(f"{name}: {option} must be a regular file")


def _is_special(path: str) -> bool:
    """Whether a path exists and is not a regular file."""
    return os.path.exists(path) and not os.path.isfile(path)


def check_store_for(destinations: Mapping[str, str | None]) -> None:
    """Reject destinations that need a store, for a run without one."""
    from momostream.feeds.outlets import is_outlet

    for option, name in destinations.items():
        if name is not None and (name == STORE or is_outlet(name)):
            raise ValueError(
                f"{option} {without_password(name)} needs --store FILE, which keeps the lines until they are delivered"
            )


def check_new(name: str | None) -> None:
    """Reject a destination that exists and has contents: nothing is overwritten without being asked to."""
    if name is not None and os.path.isfile(name) and os.path.getsize(name):
        raise ValueError(f"{name}: already exists: add --overwrite, or choose another file")


@contextmanager
def open_channels(
    run: Run,
    destinations: Mapping[str, str | None],
    format: LineFormat | None,
    overwrite: bool = False,
    keep_alarms: bool = False,
) -> Iterator[None]:
    """Give a run the channels for its predictions, alarms and rejected rows, by option.

    With ``keep_alarms``, alarms for a database stay in the store, too, for others who read it.
    """
    from momostream.feeds.outputs import PredictionLines

    output = destinations["--output"]
    assert output is not None
    run.lines = PredictionLines(
        run.plan.targets, run.plan.horizon is not None, _format_of(run, output, format), run.plan.key
    )
    with ExitStack() as stack:
        run.predictions = stack.enter_context(
            _open_channel(run, "outputs", output, run.lines.header, overwrite=overwrite)
        )
        if (name := destinations.get("--alarms")) is not None:
            run.alarms = stack.enter_context(_open_channel(run, "alarms", name, None, overwrite, keep_alarms))
        if (name := destinations.get("--dead-letters")) is not None:
            run.dead = stack.enter_context(_open_channel(run, "dead", name, overwrite=overwrite))
        yield


def _format_of(run: Run, output: str, format: LineFormat | None) -> str:
    """Format of the predictions: as asked for, else as before, else by the name of the output."""
    from momostream.feeds.outlets import is_database, is_outlet
    from momostream.feeds.outputs import format_for

    before = None if run.position is None or run.written("outputs") is None else run.position.more["format"]
    by_name = "jsonl" if output == STORE or is_outlet(output) else format_for(output)
    asked: str = before or by_name if format is None else format.value
    if is_database(output) and asked != "jsonl":
        raise ValueError(f"{without_password(output)}: predictions for a database cannot be written as {asked}")
    if before is not None and run.position is not None:
        must_agree({"format": before}, {"format": asked})
        # Earlier versions did not say, and targets could not change.
        targets = run.position.more.get("targets")
        if before == "csv" and targets not in (None, list(run.plan.targets)):
            # Lines with other columns need a file of their own.
            del run.commits.files["outputs"]
    return asked


@contextmanager
def _open_channel(
    run: Run, table: str, destination: str, header: str | None = None, overwrite: bool = False, keeps: bool = False
) -> Iterator[Channel]:
    from momostream.feeds.outlets import is_outlet, open_outlet
    from momostream.feeds.outputs import Sink
    from momostream.runs.run import Channel

    if destination == STORE:
        yield Channel(table)
    elif is_outlet(destination):
        assert run.fleet.store is not None, "outlets need a store"
        outlet = open_outlet(destination, table, run.fleet.store.identity, on_trouble=notify)
        try:
            yield Channel(table, outlet, keeps)
        finally:
            outlet.close()
    else:
        after = run.written(table)
        # Lines of the run up to here are not continued: they are in another file, or were not written.
        if after is None and not overwrite:
            check_new(destination)
        with Sink(destination, header, after) as sink:
            yield Channel(table, sink)
