"""The command line: ``momostream demo | run | fit | forecast | inspect | read``.

What is heavy is imported inside the commands: ``momostream --help`` must not wait for it.
"""

from __future__ import annotations

import ast
import difflib
import functools
import os
import re
import shlex
import signal
import sys
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from momostream.feeds import Feed, Folder
    from momostream.runs.fleet import Fleet
    from momostream.runs.plan import Plan
    from momostream.runs.run import Channel, Run
    from momostream.storage.store import Store

__all__ = ["app"]

app = typer.Typer(
    name="momostream",
    help="Forecast sensor feeds as their rows come in, with honest uncertainty.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

INTERRUPTED = 130
# As a place: the store of the run.
STORE = "store"
# Targets whose scores are told at the end.
MOST_SCORES = 12
# Imports take less, unless kernels have to be compiled.
SECONDS_OF_PATIENCE = 8.0


class BadRows(StrEnum):
    """What to do with rows that cannot be read."""

    stop = "stop"
    skip = "skip"


class Format(StrEnum):
    """How predictions are written."""

    csv = "csv"
    jsonl = "jsonl"


class Table(StrEnum):
    """What a store keeps beside models."""

    outputs = "outputs"
    alarms = "alarms"
    dead = "dead"


class DecimalMark(StrEnum):
    """What stands before the decimals."""

    point = "."
    comma = ","


# ---------------------------------------------------------------------- options that several commands have

FeedArgument = Annotated[
    str,
    typer.Argument(
        metavar="FEED",
        help="CSV or JSON lines, plain or gzip: a file, a folder of them, - for standard input. Or a broker: "
        "mqtt://HOST/TOPIC, kafka://HOST:PORT/TOPIC.",
    ),
]
FileArgument = Annotated[
    str, typer.Argument(metavar="FEED", help="CSV or JSON lines, plain or gzip; a folder of them; - is standard input.")
]
ModelArgument = Annotated[
    Path, typer.Argument(metavar="MODEL", help="File written by fit or by model.save(), or a store of run.")
]
KeyOf = Annotated[
    str | None, typer.Option("--key", metavar="KEY", help="Of a store of many models: which one. [default: all]")
]
Targets = Annotated[
    list[str] | None,
    typer.Option("--target", "-t", metavar="COLUMN", help="Column to predict; may be given several times."),
]
Inputs = Annotated[
    list[str] | None,
    typer.Option(
        "--input",
        "-i",
        metavar="COLUMN",
        help="Column to predict from; may be given several times. [default: without --horizon all other numbers]",
    ),
]
Horizon = Annotated[
    int | None,
    typer.Option(
        "--horizon",
        "-n",
        min=1,
        help="Rows to forecast ahead. Without it, the targets of a row are predicted from its other columns.",
    ),
]
Time = Annotated[
    str,
    typer.Option(
        metavar="COLUMN",
        help="Column of the timestamp; 'auto' looks for one (of a broker: the field 'time'), 'none' counts rows.",
        rich_help_panel="Reading the feed",
    ),
]
Level = Annotated[float, typer.Option(help="Probability that intervals hold.", rich_help_panel="Predictions")]
Output = Annotated[
    str | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        help="Where predictions go: a file, - for standard output, mqtt://HOST/TOPIC, kafka://HOST:PORT/TOPIC. "
        "[default: the store of --store, else standard output]",
        rich_help_panel="Predictions",
    ),
]
OutputFormat = Annotated[
    Format | None,
    typer.Option(
        "--format",
        help="Of the predictions. [default: by the name of the file, else csv]",
        rich_help_panel="Predictions",
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="Parameter of the model, such as --set max_points=128; may be given several times.",
        rich_help_panel="The model",
    ),
]
Limit = Annotated[int | None, typer.Option(min=1, help="Rows to take at most.", rich_help_panel="Reading the feed")]
SkipBad = Annotated[
    BadRows,
    typer.Option(
        "--bad-rows", help="Stop at a row that cannot be read, or skip and tell.", rich_help_panel="Reading the feed"
    ),
]
Encoding = Annotated[str, typer.Option(help="Of the feed.", rich_help_panel="Reading the feed")]
Delimiter = Annotated[
    str | None,
    typer.Option(
        help="Between the cells of a CSV feed. [default: found in its first line]", rich_help_panel="Reading the feed"
    ),
]
Decimal = Annotated[DecimalMark, typer.Option(help="Decimal mark of a CSV feed.", rich_help_panel="Reading the feed")]
TimeFormat = Annotated[
    str | None,
    typer.Option(
        metavar="FORMAT",
        help="Of timestamps, as for strptime. [default: ISO 8601 or numbers]",
        rich_help_panel="Reading the feed",
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing but errors.")]
Seed = Annotated[
    int | None,
    typer.Option(help="Of everything random: same seed, same rows, same numbers.", rich_help_panel="The model"),
]


# How to read a feed: bad rows, encoding, delimiter, decimal mark, form of times.
Reading = tuple[BadRows, str, str | None, DecimalMark, str | None]


def tell(message: str) -> None:
    """Say something beside the predictions, which may be on standard output."""
    print(f"momostream: {message}", file=sys.stderr, flush=True)


@contextmanager
def patience(quiet: bool = False) -> Iterator[None]:
    """Around imports: says why, where they take long because nothing has been compiled yet."""
    compiled = (
        any((Path(__file__).parents[1] / "kernels" / "__pycache__").glob("*.nbi")) or "NUMBA_CACHE_DIR" in os.environ
    )
    if quiet or compiled:
        yield
        return
    why = "compiling for this machine, which takes up to a minute, once"
    timer = threading.Timer(SECONDS_OF_PATIENCE, tell, [why])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def one_line_errors(command: Callable[..., None]) -> Callable[..., None]:
    """What a user can mend becomes one line and exit code 1; a reader who left is no error."""

    @functools.wraps(command)
    def guarded(*args: Any, **kwargs: Any) -> None:
        try:
            command(*args, **kwargs)
            sys.stdout.flush()
        except BrokenPipeError:
            # Or the interpreter tries to flush it again on its way out, and complains.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        except KeyboardInterrupt:
            tell("interrupted")
            raise typer.Exit(INTERRUPTED) from None
        except (ValueError, OSError) as error:
            tell(_one_line(error))
            raise typer.Exit(1) from None

    return guarded


def _one_line(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return " ".join(str(error).split())


# ---------------------------------------------------------------------- commands


@app.callback(invoke_without_command=True)
def momostream(
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
) -> None:
    """Forecast sensor feeds as their rows come in, with honest uncertainty."""
    if version:
        from momostream import __version__

        print(f"momostream {__version__}")
        raise typer.Exit


@app.command()
@one_line_errors
def demo(
    folder: Annotated[Path, typer.Option(help="Where the report and its figures go.")] = Path("momostream-demo"),
    rows: Annotated[int, typer.Option(min=200, help="Rows to stream.")] = 2400,
    horizon: Annotated[int, typer.Option("--horizon", "-n", min=1, help="Rows to forecast ahead.")] = 20,
    seed: Seed = None,
) -> None:
    """Stream a simulated wind turbine, forecast it, and leave a report.

    The turbine is simulated by momostream itself; it is not the data set of the paper.
    """
    _need_plots("the demo")
    with patience():
        from momostream.cli import demo

    report = demo.run_demo(folder, rows, horizon, seed or 0)
    print(f"report: {report}")


@app.command()
@one_line_errors
def run(
    feed: FeedArgument,
    target: Targets = None,
    input: Inputs = None,
    horizon: Horizon = None,
    time: Time = "auto",
    key: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Column that says which machine a row is from: a model for each."),
    ] = None,
    output: Output = None,
    format: OutputFormat = None,
    level: Level = 0.9,
    every: Annotated[
        int,
        typer.Option(
            min=1, help="Rows from one prediction to the next; all are learnt.", rich_help_panel="Predictions"
        ),
    ] = 1,
    alarms: Annotated[
        str | None,
        typer.Option(
            metavar="PLACE",
            help="Where values go that leave the interval expected for them: a file, -, a broker, or 'store'.",
            rich_help_panel="Predictions",
        ),
    ] = None,
    alarm_level: Annotated[
        float, typer.Option(help="Probability of that interval.", rich_help_panel="Predictions")
    ] = 0.999,
    store: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Keep models, place in the feed and predictions in this file, and go on from there.",
            rich_help_panel="Going on, and many models",
        ),
    ] = None,
    commit_every: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Rows from one commit to the next. [default: 200 for each key, from 5000 to 100000]",
            rich_help_panel="Going on, and many models",
        ),
    ] = None,
    commit_seconds: Annotated[
        float,
        typer.Option(
            min=0.0, help="Seconds after which a commit is made.", rich_help_panel="Going on, and many models"
        ),
    ] = 10.0,
    memory: Annotated[
        int,
        typer.Option(
            min=0, help="Megabytes of models in memory; others rest.", rich_help_panel="Going on, and many models"
        ),
    ] = 1024,
    share: Annotated[
        str | None,
        typer.Option(
            metavar="K/N",
            help="Take the K-th of N parts of the keys: one process and one store for each.",
            rich_help_panel="Going on, and many models",
        ),
    ] = None,
    kin: Annotated[
        bool,
        typer.Option(
            "--kin",
            help="New models start from what others have learnt. Not with --horizon.",
            rich_help_panel="Going on, and many models",
        ),
    ] = False,
    report: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="HTML report of scores and figures at the end.", rich_help_panel="Predictions"
        ),
    ] = None,
    live: Annotated[
        bool,
        typer.Option("--live", help="Draw forecasts on the terminal while they come.", rich_help_panel="Predictions"),
    ] = False,
    follow: Annotated[
        bool,
        typer.Option(
            "--follow", "-f", help="Wait for more at the end of the file.", rich_help_panel="Reading the feed"
        ),
    ] = False,
    sequence: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Of MQTT: number of a message in its topic, 1, 2, 3 and so on, by which repeated ones are dropped.",
            rich_help_panel="Reading the feed",
        ),
    ] = None,
    limit: Limit = None,
    bad_rows: Annotated[
        BadRows | None,
        typer.Option(
            "--bad-rows",
            help="Stop at a row that cannot be used, or skip it. [default: skip with --key or --store, else stop]",
            rich_help_panel="Reading the feed",
        ),
    ] = None,
    dead_letters: Annotated[
        str | None,
        typer.Option(
            metavar="PLACE",
            help="Where rows that cannot be used go, with the reason: a file or a broker. [default: the store]",
            rich_help_panel="Reading the feed",
        ),
    ] = None,
    encoding: Encoding = "utf-8",
    delimiter: Delimiter = None,
    decimal: Decimal = DecimalMark.point,
    time_format: TimeFormat = None,
    set: Settings = None,
    seed: Seed = None,
    quiet: Quiet = False,
) -> None:
    """Predict each row of a feed, then learn it.

    - `momostream run turbine.csv -t power --horizon 12 -o forecasts.csv`
    - `momostream run turbine.csv.gz -t power -i wind -i pitch --report report.html`
    - `momostream run farm.csv --key turbine -t power --horizon 6 --store farm.db`
    - `momostream run mqtt://broker/farm/+/rows --key turbine --sequence n -t power --horizon 6 --store farm.db`

    With --horizon, every row is followed by a forecast of the targets for so many rows; without it, the targets of each
    row are predicted from its other columns before they are looked at. Each prediction has a mean and an interval.

    With --store, a run that ended or was killed goes on by the same command: no row is lost or learnt twice, and
    predictions in a file are cut back to the last commit and continue as if nothing had happened. Standard input cannot
    be read again: there, the rows that come are taken as the next ones.
    """
    from momostream.feeds.brokers import is_broker

    if report is not None:
        _need_plots("--report")
        if key is not None:
            raise ValueError("--report is about one machine: it does not go with --key")
    if live and key is not None:
        raise ValueError("--live is about one machine: it does not go with --key")
    if output is None:
        output = "-" if store is None else STORE
    skip = bad_rows or (BadRows.skip if key is not None or store is not None else BadRows.stop)
    places = {"--output": output, "--alarms": alarms, "--dead-letters": dead_letters}
    _check_places({"FEED": feed, "--store": store, "--report": report, **places})
    for option, place in places.items():
        if store is None and place is not None and (place == STORE or is_broker(place)):
            raise ValueError(
                f"{option} {_public(place)} needs --store, which keeps what goes there until it has arrived"
            )
    if key is not None and key in {*(target or ()), *(input or ())}:
        raise ValueError(f"column {key!r} is the key: it cannot be a target or an input as well")
    if kin and horizon is not None:
        raise ValueError("--kin is for predictions from other columns: it does not go with --horizon")
    part = _parsed_share(share, key)
    columns = _named(target, input, horizon)
    reading = skip, encoding, delimiter, decimal, time_format
    whose = f"{'' if store is None else store.name} {part}"
    with (
        _broker_feed(feed, columns, time, time_format, key, sequence, whose)
        if is_broker(feed)
        else _opened(feed, columns, target, input, time, reading, key, follow, sequence)
    ) as source:
        # Only now: what is wrong so far need not wait for it.
        with patience(quiet):
            from momostream.runs.run import Run
        plan = _plan(source, target, input, horizon, level, every, key)
        with _fleet(plan, _parsed(set, seed, horizon), store, memory << 20, kin, part) as fleet:
            # The feed is found before the output is touched.
            with _named_after(source):
                work = Run(
                    source, fleet, plan, alarm_level=alarm_level, commit_every=commit_every,
                    commit_seconds=commit_seconds, bad_rows=skip.value, on_bad=None if quiet else _Sparingly(tell),
                    share=part,
                )  # fmt: skip
            if work.place is not None and work.place.number and not quiet:
                tell(f"going on behind row {work.place.number:,} of {source.name}")
            with _channels(work, places, format):
                try:
                    speed = _work(work, source, limit, live, quiet, output)
                except BrokenPipeError:
                    if store is not None:
                        tell(f"whoever read the output has left; {store} stands where it was committed last")
                    raise
            if not quiet:
                _tell_scores(work)
            if work.cut_off is not None:
                tell(
                    f"the last line has no newline yet: row {work.cut_off.number:,} is not in {store}, "
                    "and is read again"
                )
            if report is not None:
                _write_report(report, work, source.name, speed)
                if not quiet:
                    tell(f"report: {report}")
    if work.is_stopped:
        kept = "nothing was kept" if store is None else f"kept in {store}, the same command goes on"
        behind = f"stopped behind row {work.last.number if work.last else 0:,}"
        if work.is_abandoned:
            behind, kept = (
                "stopped",
                f"rows since the last commit are not in {store}: the same command takes them again",
            )
        tell(f"{behind}; {kept}")
        raise typer.Exit(INTERRUPTED)


@app.command()
@one_line_errors
def fit(
    feed: FileArgument,
    save: Annotated[Path, typer.Option(metavar="FILE", help="Where the model goes.")],
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file if it exists.")] = False,
    target: Targets = None,
    input: Inputs = None,
    horizon: Horizon = None,
    time: Time = "auto",
    limit: Limit = None,
    bad_rows: SkipBad = BadRows.stop,
    encoding: Encoding = "utf-8",
    delimiter: Delimiter = None,
    decimal: Decimal = DecimalMark.point,
    time_format: TimeFormat = None,
    set: Settings = None,
    seed: Seed = None,
    quiet: Quiet = False,
) -> None:
    """Learn a feed without predicting, and save the model.

    - `momostream fit history.csv -t power -t wind --horizon 12 --save model.momo`
    - `momostream forecast model.momo`
    """
    _check_places({"FEED": feed, "--save": save})
    if save.exists() and not overwrite:
        raise ValueError(f"{save}: exists: add --overwrite, or name another file for --save")
    columns = _named(target, input, horizon)
    reading = bad_rows, encoding, delimiter, decimal, time_format
    with _opened(feed, columns, target, input, time, reading) as source:
        with patience(quiet):
            from momostream.runs.run import Run
        plan = _plan(source, target, input, horizon)
        with _fleet(plan, _parsed(set, seed, horizon)) as fleet:
            work = Run(source, fleet, plan, bad_rows=bad_rows.value, on_bad=tell, learn_only=True)
            try:
                _work(work, source, limit, False, quiet, "")
            finally:
                if work.n_rows:
                    work.model.save(save)
    if not work.n_rows:
        raise ValueError(f"{source.name}: has no rows, so there is nothing to save")
    if work.is_stopped or not quiet:
        tell(f"{'stopped: ' if work.is_stopped else ''}{work.n_rows:,} rows learnt, saved in {save}")
    if work.is_stopped:
        raise typer.Exit(INTERRUPTED)


@app.command()
@one_line_errors
def forecast(
    model: ModelArgument,
    feed: Annotated[
        str | None,
        typer.Argument(metavar="[FEED]", help="Rows whose targets are predicted, for a model without a horizon."),
    ] = None,
    horizon: Horizon = None,
    output: Output = "-",
    format: OutputFormat = None,
    level: Level = 0.9,
    plot: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw the forecast, as PNG, SVG or PDF.")] = None,
    bad_rows: SkipBad = BadRows.stop,
    encoding: Encoding = "utf-8",
    delimiter: Delimiter = None,
    decimal: Decimal = DecimalMark.point,
    time_format: TimeFormat = None,
    key: KeyOf = None,
) -> None:
    """Predict with a saved model, without learning.

    - `momostream forecast model.momo --horizon 6`
    - `momostream forecast soft-sensor.momo today.csv -o predicted.csv`
    - `momostream forecast farm.db --key T01`

    A model that was made with a horizon forecasts the rows behind the last one it learnt. One without predicts the
    targets of each row of FEED.
    """
    with patience():
        from momostream.distributions.values import PredictedValues
        from momostream.estimators.regressor import MOMoGPRegressor
        from momostream.feeds.brokers import is_broker
        from momostream.feeds.outputs import PredictionLines, format_for
        from momostream.runs.fleet import Fleet
        from momostream.runs.plan import Plan
        from momostream.runs.run import ONLY, Run
        from momostream.show.outline import has_learnt

    if plot is not None:
        _need_plots("--plot")
    if plot is not None and key is None and _is_store(model) and len(_keys(model)) > 1:
        raise ValueError(f"{model}: holds many models: name one with --key to draw it")
    output, made = output or "-", format
    if output == STORE or is_broker(output):
        raise ValueError(f"--output {_public(output)}: forecasts of a saved model go to a file or to standard output")
    for number, (name, loaded, about) in enumerate(_models(model, key)):
        is_regressor = isinstance(loaded, MOMoGPRegressor)
        if is_regressor != (feed is not None):
            need = "needs a FEED with its inputs" if is_regressor else "takes no FEED: it goes on from its last row"
            raise ValueError(f"{model}: holds a {'regressor' if is_regressor else 'forecaster'}, which {need}")
        if not has_learnt(loaded):
            if key is None and name not in {None, ONLY}:
                tell(f"{model}: the model of {name!r} has learnt no value of a target yet")
                continue
            raise ValueError(f"{model}: has learnt no value of a target yet")
        if is_regressor and (plot is not None or horizon is not None):
            raise ValueError(f"{model}: holds a regressor: --horizon and --plot are for forecasters")
        if is_regressor and key is None and name not in {None, ONLY}:
            raise ValueError(f"{model}: holds many models: name one with --key")
        if is_regressor:
            assert feed is not None
            clock = loaded.clock if isinstance(loaded.clock, str) else None
            targets, inputs = tuple(map(str, loaded.targets)), tuple(map(str, loaded.inputs))
            plan = Plan(targets, inputs, clock, None, level)
            reading = bad_rows, encoding, delimiter, decimal, time_format
            loaded.freeze()
            column = None if about is None else about["plan"]["key"]
            if column is not None:
                # A feed of one machine need not say which.
                with _feed(feed, None, clock, reading) as source:
                    column = column if column in source.columns else None
            only = None if column is None else {name}
            plan = replace(plan, key=column)
            fleet = Fleet(type(loaded)())
            fleet.add(ONLY if column is None else name, loaded)
            with _feed(feed, plan.inputs, clock, reading, column) as source:
                work = Run(source, fleet, plan, bad_rows=bad_rows.value, on_bad=tell, only=only)
                with _channels(work, {"--output": output}, format):
                    work.run()
            return
        targets = tuple(map(str, loaded.series)) if about is None else tuple(about["plan"]["targets"])
        keyed = None if about is None else about["plan"]["key"]
        steps = horizon or loaded.horizon
        distribution = loaded.forecast(steps, with_dist=True)
        lines = PredictionLines(targets, True, (made and made.value) or format_for(output), keyed)
        _write_forecast(
            output, lines, name, loaded.n_rows, PredictedValues.of(distribution, targets, level), number == 0
        )
        if plot is not None:
            distribution.plot().savefig(plot, dpi=150)
            tell(f"drawn in {plot}")


@app.command()
@one_line_errors
def inspect(
    model: ModelArgument,
    plot: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw the circuit, as PNG, SVG or PDF.")] = None,
    key: KeyOf = None,
) -> None:
    """Show what a saved model has learnt: circuit, weights, lengthscales, sizes; or what a store holds."""
    with patience():
        from momostream.show.inspection import print_model, print_store

    if plot is not None:
        _need_plots("--plot")
    if _is_store(model) and key is None and _keys(model) != ["model"]:
        if plot is not None:
            raise ValueError(f"{model}: holds many models: name one with --key to draw it")
        with _reader(model) as store:
            print_store(model, store)
        return
    ((_, loaded, _),) = _models(model, key)
    places = []
    if _is_store(model):
        with _reader(model) as store:
            places = store.sources()
    print_model(model, loaded, places)
    if plot is not None:
        from momostream.show import plots

        plots.plot_circuit(loaded).savefig(plot, dpi=150)
        tell(f"drawn in {plot}")


@app.command()
@one_line_errors
def read(
    store: Annotated[Path, typer.Argument(metavar="STORE", help="Written by run --store.")],
    what: Annotated[Table, typer.Argument(help="Predictions, alarms, or rows that were refused.")] = Table.outputs,
    after: Annotated[int, typer.Option(min=0, help="Begin behind this line.")] = 0,
    numbers: Annotated[bool, typer.Option("--numbers", help="Put the number of the line before it.")] = False,
) -> None:
    """Print what a store keeps beside models, one JSON object a line; also while a run writes it.

    - `momostream read farm.db`
    - `momostream read farm.db dead`
    """
    from momostream.runs.run import letter_text

    with _reader(store) as reader:
        if what is Table.dead:
            lines = ((number, letter_text(letter)) for number, letter in reader.dead(after))
        else:
            found = reader.outputs(after) if what is Table.outputs else reader.alarms(after)
            lines = ((number, output.text) for number, output in found)
        for number, text in lines:
            print(f"{number}\t{text}" if numbers else text)


# ---------------------------------------------------------------------- pieces of the commands


def _need_plots(what: str) -> None:
    """Before any work is done, not after it."""
    from importlib.util import find_spec

    if find_spec("matplotlib") is None:
        raise ValueError(f"{what} needs matplotlib: pip install 'momostream[plot]'")


def _feed(
    place: str,
    columns: tuple[str, ...] | None,
    time: str | None,
    reading: Reading,
    key: str | None = None,
    follow: bool = False,
) -> Feed | Folder:
    from momostream.feeds import Feed, Folder

    bad_rows, encoding, delimiter, decimal, time_format = reading
    options: dict[str, Any] = {
        "bad_rows": bad_rows.value, "on_bad": tell, "encoding": encoding, "delimiter": delimiter,
        "decimal": decimal.value, "time_format": time_format, "key": key, "follow": follow,
    }  # fmt: skip
    if place != "-" and os.path.isdir(place):
        return Folder(place, columns, time, **options)
    return Feed(place, columns, time, **options)


def _named(targets: list[str] | None, inputs: list[str] | None, horizon: int | None) -> tuple[str, ...] | None:
    """The columns to read; None where they are not all named."""
    if not targets and horizon is None:
        raise ValueError("name what to predict with --target, or how far to forecast with --horizon")
    all_named = bool(targets) and (bool(inputs) or horizon is not None)
    return (*(targets or ()), *(inputs or ())) if all_named else None


def _opened(
    place: str,
    columns: tuple[str, ...] | None,
    targets: list[str] | None,
    inputs: list[str] | None,
    time: str,
    reading: Reading,
    key: str | None = None,
    follow: bool = False,
    sequence: str | None = None,
) -> Feed | Folder:
    """The feed with the columns that are needed, as far as they are named."""
    from momostream.feeds import FeedError

    if sequence is not None:
        raise ValueError("--sequence is for feeds of mqtt://")
    feed = _feed(place, columns, None if time == "none" else time, reading, key, follow)
    try:
        if not feed.readings:
            raise FeedError(f"{feed.name}: has no rows")
        for name in (*(targets or ()), *(inputs or ())):
            if name not in feed.readings:
                why = "holds no numbers in the first rows" if name in feed.columns else "does not exist"
                near = difflib.get_close_matches(name, feed.readings, 1)
                raise FeedError(f"{feed.name}: column {name!r} {why}{f': did you mean {near[0]!r}?' if near else ''}")
    except FeedError:
        feed.close()
        raise
    if feed.unread_time is not None:
        tell(f"{feed.name}: column {feed.unread_time!r} is not read as times, rows are counted: see --time-format")
    return feed


def _broker_feed(
    place: str,
    columns: tuple[str, ...] | None,
    time: str,
    time_format: str | None,
    key: str | None,
    sequence: str | None,
    whose: str,
) -> Any:
    """A feed behind a broker; ``whose`` tells those apart who read the same topic."""
    from momostream.feeds import brokers

    if columns is None:
        raise ValueError(f"{_public(place)}: name all columns of a broker's feed, with --target and --input")
    options: dict[str, Any] = {"key": key, "time_format": time_format, "on_trouble": tell}
    named = {"auto": "time", "none": None}.get(time, time)
    if place.lower().startswith("kafka"):
        if sequence is not None:
            raise ValueError("--sequence is for feeds of mqtt://")
        return brokers.KafkaFeed(place, columns, named, **options)
    if sequence is None:
        tell(f"{_public(place)}: without --sequence, a row may be learnt twice after a crash")
    # One name for one place: whoever takes the name of another takes its messages. Passwords and hosts may change.
    topic = place.partition("://")[2].partition("/")[2]
    name = None if "client_id=" in place else f"momostream-{zlib.crc32(f'{topic} {whose}'.encode()):08x}"
    return brokers.MqttFeed(place, columns, named, sequence=sequence, client_id=name, **options)


def _public(place: str) -> str:
    """A place without the password in it; Kafka has it among its settings."""
    return re.sub(r"(kafka://[^?]*)\?.*", r"\1", re.sub(r"//[^/@]*@", "//", place), flags=re.IGNORECASE)


def _parsed_share(share: str | None, key: str | None) -> tuple[int, int] | None:
    if share is None:
        return None
    if key is None:
        raise ValueError("--share divides keys: it needs --key")
    try:
        part, parts = map(int, share.split("/"))
    except ValueError:
        part, parts = 0, 0
    if not 1 <= part <= parts:
        raise ValueError(f"--share {share}: write it as K/N, such as 1/2 and 2/2")
    return part, parts


@contextmanager
def _fleet(
    plan: Plan,
    settings: dict[str, Any],
    store: Path | None = None,
    memory: int = 1 << 30,
    kin: bool = False,
    share: tuple[int, int] | None = None,
) -> Iterator[Fleet]:
    """Models for a plan, and the store where they are; made as the store says they were."""
    from momostream.runs.fleet import Fleet
    from momostream.runs.plan import make_model
    from momostream.storage.store import Store

    if store is None:
        with Fleet(make_model(plan, settings), memory_budget=memory, kin=kin) as fleet:
            yield fleet
        return
    with Store(store) as opened:
        about = opened.notes.get("about") or {}
        now = {"plan": dict(vars(plan)), "settings": settings, "share": share, "kin": kin}
        _must_agree(about, now)
        settings = {"seed": 0} | about.get("settings", {}) | settings
        with Fleet(make_model(plan, settings), store=opened, memory_budget=memory, kin=kin) as fleet:
            fleet.about = now | {"settings": settings}
            yield fleet


def _is_store(path: Path) -> bool:
    """Whether a file is a database, and not a model."""
    with path.open("rb") as file:
        return file.read(6) == b"SQLite"


def _reader(path: Path) -> Store:
    from momostream.storage.store import Store

    return Store(path, read_only=True)


def _keys(path: Path) -> list[Any]:
    with _reader(path) as store:
        return store.keys()


def _models(path: Path, key: str | None) -> Iterator[tuple[Any, Any, dict[str, Any] | None]]:
    """Key, model, and what its store says about it, of one or of all models in a file."""
    from momostream.storage import models

    if not _is_store(path):
        if key is not None:
            raise ValueError(f"{path}: holds one model, without a key")
        yield None, models.load(path), None
        return
    with _reader(path) as store:
        known = store.keys()
        # Whole numbers are keys too, but only texts come from a command line.
        wanted = known if key is None else [name for name in known if str(name) == key]
        if not wanted:
            near = difflib.get_close_matches(str(key), map(str, known), 1)
            hint = f": did you mean {near[0]!r}?" if near else ""
            raise ValueError(f"{path}: there is no model of {key!r}{hint}" if known else f"{path}: holds no model yet")
        for name in wanted:
            yield name, store.load(name), store.notes.get("about") or None


def _write_forecast(output: str, lines: Any, key: Any, number: int, outlook: Any, is_first: bool) -> None:
    from momostream.feeds.outputs import Sink
    from momostream.feeds.rows import Row

    row = Row(number, 0, None, {}, key)
    if output != "-" and not is_first:
        with open(output, "ab") as file:
            file.write(lines.text(row, outlook).encode() + b"\n")
        return
    with Sink(output, lines.header if is_first else None) as sink:
        sink.write(lines.text(row, outlook))
        sink.commit()


def _plan(
    feed: Any,
    targets: list[str] | None,
    inputs: list[str] | None,
    horizon: int | None,
    level: float = 0.9,
    every: int = 1,
    key: str | None = None,
) -> Plan:
    from momostream.runs.plan import Plan

    others = tuple(name for name in feed.readings if name not in {*(targets or ()), *(inputs or ())})
    if not targets:
        targets, others = list(others), ()
    chosen = tuple(inputs) if inputs else (others if horizon is None else ())
    return Plan(tuple(targets), chosen, feed.time, horizon, level, every, key)


def _check_places(places: dict[str, str | Path | None]) -> None:
    """Refuse to write where that cannot be, over what is read, or over something else that is written."""
    from momostream.feeds.brokers import is_broker

    known: dict[str, str] = {}
    folder: str | None = None
    for option, place in places.items():
        if place is None or str(place) in {"-", STORE} or is_broker(str(place)):
            continue
        path = os.path.realpath(place)
        is_special = os.path.exists(path) and not os.path.isfile(path)
        if option == "FEED" and os.path.isdir(path):
            folder = path
            continue
        if os.path.dirname(path) == folder:
            raise ValueError(f"{place}: lies in the folder that is read")
        if option != "FEED" and not os.path.isdir(os.path.dirname(path)):
            raise ValueError(f"{place}: there is no such folder")
        if option in {"--save", "--store", "--report"} and is_special:
            raise ValueError(f"{place}: is not a file, as {option} must be")
        # What is read and written may both be a device.
        if path in known and not is_special:
            raise ValueError(f"{place}: is named as {known[path]} and as {option}")
        known[path] = option


def _must_agree(about: dict[str, Any], now: dict[str, Any]) -> None:
    """Refuse to go on with something else than before."""
    if not about:
        return
    before, asked = ({**said, **said["plan"], **said["settings"]} for said in (about, now))
    for name, value in asked.items():
        if name in {"plan", "settings"}:
            continue
        if name not in before:
            raise ValueError(f"cannot go on: {name} was not set, now it is {value!r}")
        if value != before[name]:
            raise ValueError(f"cannot go on: {name} was {before[name]!r}, now it is {value!r}")


@contextmanager
def _named_after(feed: Any) -> Iterator[None]:
    """Errors begin with the name of the feed."""
    from momostream.feeds import FeedError

    try:
        yield
    except FeedError:
        raise
    except ValueError as error:
        raise FeedError(f"{feed.name}: {error}") from error


def _parsed(settings: list[str] | None, seed: int | None, horizon: int | None) -> dict[str, Any]:
    """Parameters of the model by name, as Python's literals or else as text."""
    parsed: dict[str, Any] = {} if seed is None else {"seed": seed}
    if not settings:
        return parsed
    from inspect import signature

    from momostream.estimators.regressor import MOMoGPRegressor

    kind: type = MOMoGPRegressor
    if horizon is not None:
        from momostream.estimators.forecaster import MOMoGPForecaster

        kind = MOMoGPForecaster
    known = list(signature(kind).parameters)
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals:
            raise ValueError(f"--set {setting}: write it as NAME=VALUE")
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f": did you mean {near[0]}?" if near else f"; there are {', '.join(known)}"
            raise ValueError(f"--set {setting}: {kind.__name__} has no parameter {name}{hint}")
        try:
            parsed[name] = ast.literal_eval(text)
        except (ValueError, SyntaxError):
            parsed[name] = text
    return parsed


@contextmanager
def _channels(run: Run, places: dict[str, str | None], format: Format | None) -> Iterator[None]:
    """Give a run the places where predictions, alarms and refused rows go."""
    from momostream.feeds.brokers import is_broker
    from momostream.feeds.outputs import PredictionLines, format_for

    output = places["--output"]
    assert output is not None
    before = None if run.place is None or run.written("outputs") is None else run.place.more["format"]
    by_name = "jsonl" if output == STORE or is_broker(output) else format_for(output)
    asked = before or by_name if format is None else format.value
    if before not in {None, asked}:
        raise ValueError(f"cannot go on: format was {before!r}, now it is {asked!r}")
    run.lines = PredictionLines(run.plan.targets, run.plan.horizon is not None, asked, run.plan.key)
    with ExitStack() as stack:
        run.predictions = stack.enter_context(_channel(run, "outputs", output, run.lines.header))
        if (place := places.get("--alarms")) is not None:
            run.alarms = stack.enter_context(_channel(run, "alarms", place))
        if (place := places.get("--dead-letters")) is not None:
            run.dead = stack.enter_context(_channel(run, "dead", place))
        yield


@contextmanager
def _channel(run: Run, table: str, place: str, header: str | None = None) -> Iterator[Channel]:
    from momostream.feeds.brokers import is_broker, open_outlet
    from momostream.feeds.outputs import Sink
    from momostream.runs.run import Channel

    if place == STORE:
        yield Channel(table)
    elif is_broker(place):
        outlet = open_outlet(place, on_trouble=tell)
        try:
            yield Channel(table, outlet)
        finally:
            outlet.close()
    else:
        after, store = run.written(table), run.fleet.store
        if store is not None and store.sources() and after is None and os.path.isfile(place):
            raise ValueError(f"{place}: exists, but was not written by the run so far: name another file")
        with Sink(place, header, after) as sink:
            yield Channel(table, sink)


class _Sparingly:
    """Tells the first few of many messages, and then every time there are ten times as many."""

    def __init__(self, tell: Callable[[str], object], first: int = 10) -> None:
        self._tell, self._first, self._n, self._next = tell, first, 0, 10 * first

    def __call__(self, message: str) -> None:
        self._n += 1
        if self._n <= self._first:
            self._tell(message)
        elif self._n == self._next:
            self._next *= 10
            self._tell(f"{message} ({self._n:,} so far)")


def _work(run: Run, feed: Any, limit: int | None, live: bool, quiet: bool, output: str) -> float:
    """Run to the end under watch; rows per second."""
    from momostream.show import terminal as views

    total = None if limit is None else run.n_rows + limit
    with stoppable(run):
        if quiet:
            run.run(limit)
        elif live and sys.stderr.isatty():
            with views.LiveView(feed.name, total) as view:
                run.run(limit, view.update)
                view.show(run)
        else:
            # A bar and predictions on one terminal would destroy each other.
            alone = sys.stderr.isatty() and not (output == "-" and sys.stdout.isatty())
            with views.Bar(feed, total) if alone else views.PlainView(feed.name, total) as view:
                run.run(limit, view.update)
    return run.rows_per_second


@contextmanager
def stoppable(run: Run) -> Iterator[None]:
    """Ctrl-C and SIGTERM end the run after the row in hand; a second one ends it at once."""

    def stop(number: int, frame: Any) -> None:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
        run.stop()

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _tell_scores(run: Run) -> None:
    from momostream.show.outline import counted

    bad = f", {counted(run.n_bad, 'bad row')} skipped" if run.n_bad else ""
    if run.track is None:
        tell(f"{counted(run.n_rows, 'row')} of {counted(len(run.fleet), 'key')} learnt{bad}")
        return
    tell(f"{counted(run.n_rows, 'row')} learnt, {counted(run.track.n_scored, 'prediction')} scored{bad}")
    summary = run.track.summary if run.track.n_scored else run.track.summary.iloc[:0]
    for number, (name, line) in enumerate(summary.iterrows()):
        if number == MOST_SCORES:
            tell(f"  and {len(summary) - number} more")
            break
        if line.isna().all():
            tell(f"  {name}: no value came")
        else:
            tell(
                f"  {name}: RMSE {line['rmse']:.4g} (last value {line['naive']:.4g}), "
                f"{run.track.level:.0%} intervals held {line['coverage']:.1%}"
            )


def _write_report(path: Path, run: Run, name: str, speed: float) -> None:
    from momostream.show.report import write_report

    assert run.track is not None
    facts = {"Feed": name, "Rows learnt": f"{run.n_rows:,}", "Bad rows": f"{run.n_bad:,}"}
    facts["Rows per second"] = f"{speed:,.0f}"
    settings = {**vars(run.plan), **run.model._get_params()}
    command = shlex.join(["momostream", *map(_public, sys.argv[1:])])
    write_report(
        path, run.track, run.model, forecast=run.forecast(), history=run.history, title=f"Forecasts of {name}",
        facts=facts, settings=settings, command=command,
    )  # fmt: skip
