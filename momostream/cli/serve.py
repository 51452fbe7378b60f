"""``momostream serve``: run the feeds of a configuration file, and serve a page and an HTTP interface."""

from __future__ import annotations

import gc
import logging
import os
import re
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from momostream.cli.command import command
from momostream.cli.farm_checks import check_models_and_files, errors_with_lines, tls_of
from momostream.cli.messages import import_models, log_messages, require_serve
from momostream.cli.options import (
    Alarms,
    BadRows,
    Columns,
    DecimalMark,
    Display,
    FileFormat,
    LineFormat,
    ModelSettings,
    Predictions,
    QuietOption,
    Reading,
    Storing,
)
from momostream.cli.run import RunRequest

if TYPE_CHECKING:
    from momostream.runs.run import Run
    from momostream.serve.config import Farm, FeedConfig

__all__ = ["serve", "serve_run", "store_path"]

# Seconds that feeds get to commit when the server ends.
END_SECONDS = 60.0
# Seconds between two looks at whether a feed still runs.
WATCH_SECONDS = 0.5

_log = logging.getLogger("momostream.serve")


@command
def serve(
    config: Annotated[Path, typer.Argument(metavar="FARM.TOML", help="Configuration: feeds, targets, alarms, stores.")],
    address: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Where to serve. [default: as configured, 127.0.0.1:8080]")
    ] = None,
    json_log: Annotated[bool, typer.Option("--json-log", help="Write the log as JSON lines.")] = False,
    check: Annotated[bool, typer.Option("--check", help="Check the configuration and exit.")] = False,
    quiet: QuietOption = False,
) -> None:
    """Run feeds into stores, and serve a live page and an HTTP interface.

    - `momostream init turbine.csv && momostream serve farm.toml`
    - `curl --data-binary @rows.jsonl http://127.0.0.1:8080/feeds/north/rows`

    Ctrl-C or SIGTERM commits and ends; the same command resumes.
    """
    from momostream.serve.config import read_config, split_address

    farm = read_config(config)
    if address is not None:
        split_address(address)
        farm = replace(farm, serve=replace(farm.serve, address=address))
    requests = {feed.name: request_for(farm, feed) for feed in farm.feeds}
    for name, request in requests.items():
        with errors_with_lines(farm, name):
            request.check()
    if check:
        check_models_and_files(farm, requests)
        print(f"{config}: {len(farm.feeds)} {'feed' if len(farm.feeds) == 1 else 'feeds'}, no mistakes found")
        return
    require_serve("serve")
    log_messages(json_log, quiet)
    _serve_farm(farm, requests)


def _serve_farm(farm: Farm, requests: dict[str, ServedRequest]) -> None:
    from momostream.serve.security import Tokens, check_address

    tokens, tls = Tokens.of(farm.serve, farm.folder), tls_of(farm)
    warning = check_address(farm.serve, tokens)
    # Only now: these import the models, which a mistake need not wait for.
    from momostream.serve.server import FeedWorker, PageServer
    from momostream.serve.state import FeedState

    states = [FeedState(feed, farm.serve.history) for feed in farm.feeds]
    server = PageServer(states, farm.serve, tokens, tls)
    ended = _signals()
    server.start()
    if warning is not None:
        _log.warning(warning)
    _log.info("page: %s", server.address)
    import_models()
    # What was imported stays: looking through it for garbage again and again would make rows wait.
    gc.collect()
    gc.freeze()
    workers = [
        FeedWorker(state, requests[state.name].opener(farm), _book_path(requests[state.name].storing.store))
        for state in states
    ]
    senders = [*_webhooks(farm, requests), *_mails(farm, requests)]
    for started in (*workers, *senders):
        started.start()
    reports = _reports(farm, states)
    # A process in which no feed runs is of use to nobody: whoever supervises it shall know.
    while not ended.wait(WATCH_SECONDS) and any(state.status != "failed" for state in states):
        if reports is not None:
            reports.write_if_due()
    _log.info("stopping: feeds commit")
    for worker in workers:
        worker.stop()
    late = [worker.state.name for worker in workers if not worker.join(END_SECONDS)]
    for sender in senders:
        sender.stop()
    server.stop()
    if late:
        _log.error("%s did not end in time: rows since the last commit are read again", ", ".join(late))
    failed = [state.name for state in states if state.status == "failed"]
    if late or failed:
        raise typer.Exit(1)


def _reports(farm: Farm, states: list[Any]) -> Any:
    """What writes the reports of every morning; None if none are asked for."""
    from momostream.serve.reports import MorningReports

    folder = farm.serve.reports
    return None if folder is None else MorningReports(states, farm.path(folder), farm.serve.report_at)


def _webhooks(farm: Farm, requests: dict[str, ServedRequest]) -> Iterator[Any]:
    """What sends the alarms of each store to each address."""
    from momostream.feeds.secrets import read_secret
    from momostream.serve.webhooks import Webhook

    for config in farm.webhooks:
        secret = read_secret("MOMOSTREAM_WEBHOOK_SECRET", config.secret_file, farm.folder)
        for name, request in requests.items():
            store = request.storing.store
            assert store is not None
            yield Webhook(name, store, store.with_name(f"{store.name}-page"), config.url, secret, config.timeout)


def _mails(farm: Farm, requests: dict[str, ServedRequest]) -> Iterator[Any]:
    """What sends the alarms of each store to people."""
    from momostream.feeds.secrets import read_secret, tls_context
    from momostream.serve.mail import Mail

    for config in farm.mails:
        password = read_secret("MOMOSTREAM_MAIL_PASSWORD", config.password_file, farm.folder)
        context = tls_context({} if config.ca is None else {"ca": os.fspath(farm.path(config.ca))})
        for name, request in requests.items():
            store = request.storing.store
            assert store is not None
            yield Mail(name, store, store.with_name(f"{store.name}-page"), config, password, context)


def _signals() -> threading.Event:
    """An event that Ctrl-C and SIGTERM set; a second signal ends the process at once."""
    ended = threading.Event()

    def stop(number: int, frame: Any) -> None:
        signal.signal(number, signal.SIG_DFL)
        ended.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    return ended


def _book_path(store: Path | None) -> Path | None:
    return None if store is None else store.with_name(f"{store.name}-page")


@dataclass(frozen=True)
class ServedRequest(RunRequest):
    """A feed of a configuration file, with the options that the command line would have."""

    pushed: bool = False
    name: str = ""

    def open_feed(self) -> Any:
        """Open files, a broker, or the journal of rows that are pushed."""
        if not self.pushed:
            return super().open_feed()
        from momostream.serve.journal import Journal

        assert self.storing.store is not None
        folder = self.storing.store.with_name(f"{self.storing.store.name}-rows")
        columns = (*(self.columns.target or ()), *(self.columns.input or ()))
        time = {"auto": "time", "none": None}.get(self.columns.time, self.columns.time)
        return Journal(folder, self.name, columns, time)

    def opener(self, farm: Farm) -> Any:
        """A function that opens the run, in the thread that calls it."""

        @contextmanager
        def open_run() -> Iterator[tuple[Run, Any]]:
            from momostream.cli.feeds import errors_named_after, plan_for
            from momostream.cli.outputs import open_channels

            with self.open_feed() as source:
                if self.pushed:
                    source.max_backlog = int(farm.serve.max_backlog_mb * 1e6)
                    source.idle_seconds = self.storing.commit_seconds
                plan = plan_for(source, self.columns, self.predictions.level, self.predictions.every, self.key)
                with self.open_fleet(plan) as fleet:
                    with errors_named_after(source):
                        run = self.make_run(source, fleet, plan)
                    # Mails and webhooks read them from the store.
                    keep_alarms = bool(farm.webhooks or farm.mails)
                    shown = self.predictions
                    with open_channels(run, self.destinations, shown.format, shown.overwrite, keep_alarms):
                        yield run, source

        return open_run


def store_path(farm: Farm, feed: FeedConfig) -> Path:
    """The store of a feed."""
    return farm.path(feed.store or f"{feed.name}.db")


def request_for(farm: Farm, feed: FeedConfig) -> ServedRequest:
    """The options of a feed, as the command line would have them."""
    from momostream.feeds.parquet import is_parquet

    store = store_path(farm, feed)
    bad_rows = None if feed.bad_rows is None else BadRows(feed.bad_rows)
    return ServedRequest(
        feed=feed.source if feed.is_pushed else _address(farm, feed.source),
        columns=Columns(list(feed.targets) or None, list(feed.inputs) or None, feed.horizon, feed.time),
        key=feed.key,
        predictions=Predictions(
            _destination(farm, feed.output), LineFormat(feed.format) if feed.format else None, feed.level, feed.every,
            feed.overwrite,
        ),
        alarms=Alarms(
            _destination(farm, feed.alarms), feed.alarm_level, feed.false_alarms, list(feed.alarm) or None,
            feed.alarm_probability,
        ),
        storing=Storing(
            store, feed.commit_every, feed.commit_seconds, feed.keep, feed.memory, feed.share, feed.warm_start
        ),
        display=Display(),
        reading=Reading(
            # A Parquet file has an end; its folder can be followed.
            feed.follow and not is_parquet(feed.source), None if feed.is_pushed else feed.sequence, feed.limit,
            BadRows.skip if feed.is_pushed else bad_rows, _destination(farm, feed.dead_letters), feed.start, feed.last,
        ),
        file_format=FileFormat(feed.encoding, feed.delimiter, DecimalMark(feed.decimal), feed.time_format),
        model=ModelSettings(
            [f"{name}={_setting(value)!r}" for name, value in feed.model.items()], feed.seed, list(feed.bounds) or None
        ),
        quiet=False,
        pushed=feed.is_pushed,
        name=feed.name,
    )  # fmt: skip


def _setting(value: Any) -> Any:
    """A parameter of a model: TOML has lists where Python has tuples."""
    if isinstance(value, dict):
        return {name: _setting(each) for name, each in value.items()}
    return tuple(map(_setting, value)) if isinstance(value, list) else value


def _destination(farm: Farm, name: str | None) -> str | None:
    return name if name is None or name in {"-", "store"} else _address(farm, name)


def _address(farm: Farm, name: str) -> str:
    """A path or URL: relative paths, also those of certificates and secrets, begin at the folder of the file."""
    from momostream.feeds.secrets import relative_to

    return relative_to(farm.folder, name) if "://" in name else os.fspath(farm.path(name))


# ---------------------------------------------------------------------- a page about one run


@contextmanager
def serve_run(
    run: Run,
    address: str,
    alarm_level: float | None,
    title: str,
    store: Path | None = None,
    units: dict[str, str] | None = None,
) -> Iterator[str]:
    """Serve a page about a run that another thread takes to its end; gives its address. No level, no alarms."""
    from momostream.feeds.outputs import Sink
    from momostream.runs.run import Channel
    from momostream.serve.book import Book
    from momostream.serve.config import FeedConfig, ServeConfig
    from momostream.serve.security import Tokens, check_address
    from momostream.serve.server import PageServer
    from momostream.serve.state import FeedState

    config = ServeConfig(address=address, title=title)
    tokens = Tokens.of(config, Path())
    check_address(config, tokens)
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", Path(title).stem).strip("-")[:64] or "feed"
    state = FeedState(FeedConfig(name, source="run", title=title, alarm_level=alarm_level or 0.999, units=units or {}))
    book = Book(_book_path(store))
    if run.alarms is None and alarm_level is not None:
        # The page shows alarms even if nobody else asked for them.
        run.alarms = Channel("alarms", None if store is not None else Sink(BytesIO(), None))
    server = PageServer([state], config, tokens)
    state.begin(run, book)
    server.start()
    try:
        yield server.address
    finally:
        state.end()
        server.stop()
        book.close()
