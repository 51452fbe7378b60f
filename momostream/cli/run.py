"""``momostream run``: predict each row of a feed, then learn it."""

from __future__ import annotations

import shlex
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from momostream.cli.command import INTERRUPTED, command
from momostream.cli.feeds import (
    check_extent,
    check_sequence,
    errors_named_after,
    limited,
    open_broker,
    open_checked,
    open_files,
    plan_for,
    without_password,
)
from momostream.cli.messages import Sparingly, import_models, notify, require_matplotlib, require_serve
from momostream.cli.models import open_fleet, parse_settings
from momostream.cli.options import (
    Alarms,
    BadRows,
    Columns,
    Display,
    FeedArgument,
    FileFormat,
    ModelSettings,
    Predictions,
    QuietOption,
    Reading,
    Storing,
)
from momostream.cli.outputs import STORE, check_new, check_paths, check_store_for, open_channels
from momostream.cli.watching import print_scores, run_watched

if TYPE_CHECKING:
    from momostream.runs.fleet import Fleet
    from momostream.runs.plan import Plan
    from momostream.runs.run import Run

__all__ = ["RunRequest", "run"]


@command
def run(
    feed: FeedArgument,
    columns: Columns,
    predictions: Predictions,
    alarms: Alarms,
    storing: Storing,
    display: Display,
    reading: Reading,
    file_format: FileFormat,
    model: ModelSettings,
    key: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Column that identifies the machine of a row; each gets its own model."),
    ] = None,
    quiet: QuietOption = False,
) -> None:
    """Predict each row of a feed, then learn it.

    - `momostream run turbine.csv -t power --horizon 6h --every 1h -o forecasts.csv`
    - `momostream run turbine.csv.gz -t power -i wind -i pitch --report report.html`
    - `momostream run farm.csv --key turbine -t power --horizon 6 --store farm.db`
    - `momostream run mqtt://broker/farm/+/rows --key turbine --sequence n -t power --horizon 6 --store farm.db`

    With --horizon, each row is followed by a forecast of the targets for that many rows, or for that span of time.
    Without it, the targets of each row are predicted from its other columns before they are learnt. Each prediction has
    a mean and an interval.

    With --store, the same command resumes a run that ended or was killed: no row is lost or learnt twice, and a file of
    predictions is cut back to the last commit and continued from there. Standard input cannot be read again: there, the
    run continues with the rows that arrive.
    """
    if display.serve is not None:
        require_serve("--serve")
    request = RunRequest(feed, columns, key, predictions, alarms, storing, display, reading, file_format, model, quiet)
    request.check()
    with request.open_feed() as source:
        # Only now: errors found so far need not wait for these imports.
        import_models(columns.horizon is not None, quiet)
        plan = plan_for(source, columns, predictions.level, predictions.every, key)
        with request.open_fleet(plan) as fleet:
            # The run finds its position in the feed before any output is touched.
            with errors_named_after(source):
                work = request.make_run(source, fleet, plan)
            signals = _work(request, work, source)
    if work.is_stopped:
        notify(_stopped(work, storing.store))
        # A service manager stops by SIGTERM. All is in the store, so that is not a failure.
        if storing.store is None or signal.SIGTERM not in signals:
            raise typer.Exit(INTERRUPTED)


@dataclass(frozen=True)
class RunRequest:
    """The options of the command line, or of a feed that is served."""

    feed: str
    columns: Columns
    key: str | None
    predictions: Predictions
    alarms: Alarms
    storing: Storing
    display: Display
    reading: Reading
    file_format: FileFormat
    model: ModelSettings
    quiet: bool

    def check(self) -> None:
        """Raise an error for wrong options before anything is opened."""
        from momostream.feeds.secrets import check_no_password

        for option, address in {"FEED": self.feed, **self.destinations}.items():
            check_no_password(option, address)
        store, display = self.storing.store, self.display
        if display.report is not None and self.key is None:
            require_matplotlib("--report")
        if display.live and self.key is not None:
            raise ValueError("--live shows one model: it cannot be combined with --key")
        check_paths({"FEED": self.feed, "--store": store, "--report": display.report, **self.destinations})
        if store is None:
            check_store_for(self.destinations)
        if not self.predictions.overwrite and (store is None or not store.exists()):
            for name in self.destinations.values():
                check_new(name)
        if self.key is not None and self.key in {*(self.columns.target or ()), *(self.columns.input or ())}:
            raise ValueError(f"column {self.key!r} is the key: it cannot be a target or an input as well")
        if self.storing.keep is not None:
            from momostream.horizon.durations import parse_duration

            if store is None:
                raise ValueError("--keep removes old lines from a store: it needs --store")
            parse_duration(self.storing.keep)
        if self.storing.kin and not self.quiet:
            notify("--kin is now called --warm-start; the old name still works")
        if self.warm_start and self.columns.horizon is not None:
            raise ValueError("--warm-start cannot be combined with --horizon: forecasters do not support it")
        if self.storing.workers is not None:
            self._check_workers()
        parse_settings(self.model, self.columns.horizon)

    def _check_workers(self) -> None:
        """Raise an error for options that need all models in one process."""
        if self.key is None:
            raise ValueError("--workers divides the keys: it needs --key")
        others = {
            "--serve": self.display.serve, "--report": self.display.report, "--alarm": self.alarms.alarm,
            "--warm-start": self.warm_start, "--bad-rows stop": self.bad_rows is BadRows.stop,
        }  # fmt: skip
        for option, is_given in others.items():
            if is_given not in (None, False):
                raise ValueError(f"--workers cannot be combined with {option}")

    @property
    def destinations(self) -> dict[str, str | None]:
        """Destinations of lines, by option."""
        return {
            "--output": self.output,
            "--alarms": self.alarms.alarms,
            "--dead-letters": self.reading.dead_letters,
        }

    @property
    def output(self) -> str:
        """Destination of predictions."""
        if self.predictions.output is not None:
            return self.predictions.output
        return "-" if self.storing.store is None else STORE

    @property
    def bad_rows(self) -> BadRows:
        """Policy for bad rows: one of them must not end a run of many models, or one that can be resumed."""
        skips = self.key is not None or self.storing.store is not None
        return self.reading.bad_rows or (BadRows.skip if skips else BadRows.stop)

    @property
    def warm_start(self) -> bool:
        """Whether new models start from the hyper-parameters of others."""
        return self.storing.warm_start or self.storing.kin

    @property
    def share(self) -> tuple[int, int] | None:
        """The part of the keys to process, and how many parts there are."""
        text = self.storing.share
        if text is None:
            return None
        if self.key is None:
            raise ValueError("--share divides the keys: it needs --key")
        try:
            part, parts = map(int, text.split("/"))
        except ValueError:
            part, parts = 0, 0
        if not 1 <= part <= parts:
            raise ValueError(f"--share {text}: expected K/N, such as 1/2 and 2/2")
        return part, parts

    def open_feed(self) -> Any:
        """Open files or a broker."""
        from momostream.feeds.brokers import is_remote

        share, sequence = self.share, self.reading.sequence
        start, last = self.reading.start, self.reading.last
        check_extent(start, last, has_end=not is_remote(self.feed) and self.feed != "-")
        if is_remote(self.feed):
            reader = f"{'' if self.storing.store is None else self.storing.store.name} {share}"
            opened = open_broker(self.feed, self.columns, self.file_format.time_format, self.key, sequence, reader)
            return limited(opened, start, last, None)
        check_sequence(sequence)
        opened = open_checked(self.feed, self.columns, self.file_format, self.bad_rows, self.key, self.reading.follow)
        return limited(opened, start, last, lambda: self._again(opened))

    def _again(self, opened: Any) -> Any:
        """The same files once more, up to their present end."""
        return open_files(
            self.feed, opened.readings, opened.time, self.file_format, BadRows.skip, self.key, notes=False
        )

    def open_fleet(self, plan: Plan) -> Any:
        """Open the models of the run."""
        settings = parse_settings(self.model, self.columns.horizon)
        store, memory = self.storing.store, self.storing.memory << 20
        return open_fleet(plan, settings, store, memory, self.warm_start, self.share)

    def make_run(self, source: Any, fleet: Fleet, plan: Plan) -> Run:
        """Make the run, which moves the feed to its position in the store."""
        from momostream.runs.run import Run

        return Run(
            source,
            fleet,
            plan,
            alarm_level=self.alarms.alarm_level,
            false_alarms=_rate(self.alarms.false_alarms),
            alarm_rules=self.alarms.alarm or (),
            alarm_probability=self.alarms.alarm_probability,
            on_alarm=None if self.quiet or self.alarms.alarms == "-" else Sparingly(notify),
            commit_every=self.storing.commit_every,
            commit_seconds=self.storing.commit_seconds,
            keep=self.storing.keep,
            bad_rows=self.bad_rows.value,
            on_bad=None if self.quiet else Sparingly(notify),
            share=self.share,
            workers=self.storing.workers,
        )


def _work(request: RunRequest, run: Run, source: Any) -> list[int]:
    """Take the rows of the feed, then print scores and write the report; the signals that stopped it."""
    store, report, quiet = request.storing.store, request.display.report, request.quiet
    if run.position is not None and run.position.number and not quiet:
        notify(f"resuming after row {run.position.number:,} of {source.name}")
    with open_channels(run, request.destinations, request.predictions.format, request.predictions.overwrite):
        try:
            with served(run, source, request):
                if report is not None and request.key is not None and run.watcher is None:
                    _watch_machines(run, request)
                signals = run_watched(run, source, request.reading.limit, request.display.live, quiet, request.output)
        except BrokenPipeError:
            if store is not None:
                notify(f"standard output was closed; {store} holds the last commit: run the same command to resume")
            raise
    rows_per_second = run.rows_per_second
    if not quiet:
        print_scores(run)
    if run.cut_off is not None:
        notify(
            f"the last line has no newline yet: row {run.cut_off.number:,} is not saved in {store}, "
            "the next run reads it again"
        )
    if report is not None and request.key is not None:
        from momostream.serve.reports import report_state
        from momostream.serve.state import FeedState

        assert isinstance(run.watcher, FeedState)
        report_state(run.watcher, report, f"Machines of {source.name}", {"Rows per second": f"{rows_per_second:,.0f}"})
    elif report is not None:
        _write_report(report, run, source.name, rows_per_second)
        if not quiet:
            notify(f"report: {report}")
    return signals


def _watch_machines(run: Run, request: RunRequest) -> None:
    """Keep what the report of many machines shows."""
    from momostream.serve.book import Book
    from momostream.serve.config import FeedConfig
    from momostream.serve.state import FeedState

    store = request.storing.store
    FeedState(FeedConfig("run", source="run", alarm_level=request.alarms.alarm_level)).begin(
        run, Book(None if store is None else store.with_name(f"{store.name}-page"))
    )


@contextmanager
def served(run: Run, source: Any, request: RunRequest) -> Iterator[None]:
    """Serve a page about a run while it lasts, if that is asked for."""
    if request.display.serve is None:
        yield
        return
    from momostream.cli.serve import serve_run

    with serve_run(
        run, request.display.serve, request.alarms.alarm_level, source.name, request.storing.store
    ) as address:
        notify(f"page: {address}")
        yield


def _rate(text: str | None) -> float | str | None:
    """The rate of --false-alarms: a share of rows as a number, else the text."""
    try:
        return None if text is None else float(text)
    except ValueError:
        return text


def _stopped(run: Run, store: Path | None) -> str:
    """Message about a stopped run: what was saved, and how to resume it."""
    if run.is_abandoned:
        return f"stopped; rows after the last commit are not saved in {store}: run the same command to read them again"
    stopped = f"stopped after row {run.last.number if run.last else 0:,}"
    if store is None:
        return f"{stopped}; nothing was saved: use --store to be able to resume"
    return f"{stopped}, saved in {store}; run the same command to resume"


def _write_report(path: Path, run: Run, name: str, rows_per_second: float) -> None:
    from momostream.show.report import write_report

    assert run.track is not None
    write_report(
        path,
        run.track,
        run.model,
        forecast=run.forecast(),
        history=run.history,
        title=f"Forecasts of {name}",
        facts={
            "Feed": name,
            "Rows learnt": f"{run.n_rows:,}",
            "Bad rows": f"{run.n_bad:,}",
            "Rows per second": f"{rows_per_second:,.0f}",
        },
        settings={**vars(run.plan), **run.model._get_params()},
        command=shlex.join(["momostream", *map(without_password, sys.argv[1:])]),
    )
