"""The command line: ``momostream demo | run | fit | forecast | inspect``.

What is heavy is imported inside the commands: ``momostream --help`` must not wait for it.
"""

from __future__ import annotations

import ast
import difflib
import functools
import os
import shlex
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from momostream.feeds import Feed
    from momostream.running import Checkpoint, Plan, Run
    from momostream.sinks import Sink

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


class DecimalMark(StrEnum):
    """What stands before the decimals."""

    point = "."
    comma = ","


# ---------------------------------------------------------------------- options that several commands have

FeedArgument = Annotated[
    str, typer.Argument(metavar="FEED", help="CSV or JSON lines, plain or gzip; - is standard input.")
]
ModelArgument = Annotated[Path, typer.Argument(metavar="MODEL", help="File written by --save or by model.save().")]
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
        help="Column of the timestamp; 'auto' looks for one, 'none' counts rows.",
        rich_help_panel="Reading the feed",
    ),
]
Level = Annotated[float, typer.Option(help="Probability that intervals hold.", rich_help_panel="Predictions")]
Output = Annotated[
    str,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        help="Where predictions go; - is standard output.",
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


def tell(message: str) -> None:
    """Say something beside the predictions, which may be on standard output."""
    print(f"momostream: {message}", file=sys.stderr, flush=True)


@contextmanager
def patience(quiet: bool = False) -> Iterator[None]:
    """Around imports: says why, where they take long because nothing has been compiled yet."""
    compiled = any((Path(__file__).parent / "__pycache__").glob("kernels*.nbi")) or "NUMBA_CACHE_DIR" in os.environ
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
        from momostream import demo

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
    output: Output = "-",
    format: OutputFormat = None,
    level: Level = 0.9,
    every: Annotated[
        int,
        typer.Option(
            min=1, help="Rows from one prediction to the next; all are learnt.", rich_help_panel="Predictions"
        ),
    ] = 1,
    save: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Keep the model, and where the run stands.", rich_help_panel="Saving and going on"
        ),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Go on from --save, where it exists.", rich_help_panel="Saving and going on"),
    ] = False,
    overwrite: Annotated[
        bool,
        typer.Option("--overwrite", help="Begin anew although --save exists.", rich_help_panel="Saving and going on"),
    ] = False,
    commit_every: Annotated[
        int, typer.Option(min=1, help="Rows from one save to the next.", rich_help_panel="Saving and going on")
    ] = 5000,
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
    """Predict each row of a feed, then learn it.

    - `momostream run turbine.csv -t power --horizon 12 -o forecasts.csv`
    - `momostream run turbine.csv.gz -t power -i wind -i pitch --report report.html`
    - `tail -n +1 -f turbine.csv | momostream run - -t power --horizon 6`

    With --horizon, every row is followed by a forecast of the targets for so many rows; without it, the targets of each
    row are predicted from its other columns before they are looked at. Each prediction has a mean and an interval.

    With --save, a run that ended or was killed goes on by the same command and --resume: predictions in a file are
    cut back to the last save and continue as if nothing had happened. Standard input cannot be read again: there,
    the rows that come are taken as the next ones.
    """
    if report is not None:
        _need_plots("--report")
    if save is None and (resume or overwrite):
        raise ValueError(f"{'--resume' if resume else '--overwrite'} needs --save")
    _check_places({"FEED": feed, "--output": output, "--save": save, "--report": report})
    with _opened(feed, target, input, horizon, time, bad_rows, encoding, delimiter, decimal, time_format) as source:
        # Only now: what is wrong so far need not wait for it.
        with patience(quiet):
            from momostream.running import Run, make_model
        model, checkpoint = _saved_run(save, resume) if save is not None and not overwrite else (None, None)
        plan = _plan(source, target, input, horizon, level, every)
        settings = _parsed(set, seed, horizon)
        if model is None:
            model = make_model(plan, settings)
        else:
            _must_agree(plan, settings, checkpoint, model)
        # The feed is found before the output is touched.
        with _named_after(source):
            work = Run(source, model, plan, save=save, commit_every=commit_every, checkpoint=checkpoint)
        if checkpoint is not None and not quiet:
            tell(f"going on behind row {checkpoint.number:,} of {source.name}")
        if overwrite and save is not None:
            save.unlink(missing_ok=True)
        with _sink(output, plan, format, checkpoint) as work.sink:
            try:
                speed = _work(work, source, limit, live, quiet, output)
            except BrokenPipeError:
                if save is not None:
                    tell(f"whoever read the output has left; {save} stands where it was saved last")
                raise
    if not quiet:
        _tell_scores(work)
    if work.cut_off is not None:
        tell(f"the last line has no newline yet: row {work.cut_off.number:,} is not in {save}, and is read again")
    if report is not None:
        _write_report(report, work, source.name, speed)
        if not quiet:
            tell(f"report: {report}")
    if work.is_stopped:
        kept = f"saved in {save}, go on with --resume" if save is not None and save.exists() else "nothing was kept"
        tell(f"stopped behind row {work.last.number if work.last else 0:,}; {kept}")
        raise typer.Exit(INTERRUPTED)


@app.command()
@one_line_errors
def fit(
    feed: FeedArgument,
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
    with _opened(feed, target, input, horizon, time, bad_rows, encoding, delimiter, decimal, time_format) as source:
        with patience(quiet):
            from momostream.running import Run, make_model
        plan = _plan(source, target, input, horizon)
        model = make_model(plan, _parsed(set, seed, horizon))
        work = Run(source, model, plan, save=save, commit_every=sys.maxsize, learn_only=True)
        _work(work, source, limit, False, quiet, "")
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
) -> None:
    """Predict with a saved model, without learning.

    - `momostream forecast model.momo --horizon 6`
    - `momostream forecast soft-sensor.momo today.csv -o predicted.csv`

    A model that was made with a horizon forecasts the rows behind the last one it learnt. One without predicts the
    targets of each row of FEED.
    """
    with patience():
        from momostream import persistence
        from momostream.online import MOMoGPRegressor
        from momostream.outline import has_learnt
        from momostream.running import Checkpoint, Plan, Run
        from momostream.tracking import Outlook

    if plot is not None:
        _need_plots("--plot")
    loaded, data = persistence.load_run(model)
    is_regressor = isinstance(loaded, MOMoGPRegressor)
    if is_regressor != (feed is not None):
        need = "needs a FEED with its inputs" if is_regressor else "takes no FEED: it goes on from its last row"
        raise ValueError(f"{model}: holds a {'regressor' if is_regressor else 'forecaster'}, which {need}")
    if not has_learnt(loaded):
        raise ValueError(f"{model}: has learnt no value of a target yet")
    if is_regressor and (plot is not None or horizon is not None):
        raise ValueError(f"{model}: holds a regressor: --horizon and --plot are for forecasters")
    saved = None if data is None else Checkpoint.from_plain(data)
    if is_regressor:
        assert feed is not None
        clock = loaded.clock if isinstance(loaded.clock, str) else None
        targets, inputs = tuple(map(str, loaded.targets)), tuple(map(str, loaded.inputs))
        plan = Plan(targets, inputs, clock, None, level)
        with (
            _feed(feed, plan.inputs, clock, bad_rows, encoding, delimiter, decimal, time_format) as source,
            _sink(output, plan, format, None) as sink,
        ):
            loaded.freeze()
            Run(source, loaded, plan, sink).run()
        return
    targets = tuple(map(str, loaded.series)) if saved is None else saved.plan.targets
    steps = horizon or loaded.horizon
    plan = Plan(targets, (), loaded.time, steps, level)
    law = loaded.forecast(steps, with_dist=True)
    with _sink(output, plan, format, None) as sink:
        sink.write(loaded.n_rows if saved is None else saved.number, None, Outlook.of(law, targets, level))
        sink.commit()
    if plot is not None:
        law.plot().savefig(plot, dpi=150)
        tell(f"drawn in {plot}")


@app.command()
@one_line_errors
def inspect(
    model: ModelArgument,
    plot: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw the circuit, as PNG, SVG or PDF.")] = None,
) -> None:
    """Show what a saved model has learnt: circuit, weights, lengthscales, sizes."""
    with patience():
        from momostream import persistence
        from momostream.inspection import print_model

    if plot is not None:
        _need_plots("--plot")
    loaded, data = persistence.load_run(model)
    print_model(model, loaded, data)
    if plot is not None:
        from momostream import plotting

        plotting.plot_circuit(loaded).savefig(plot, dpi=150)
        tell(f"drawn in {plot}")


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
    bad_rows: BadRows,
    encoding: str,
    delimiter: str | None,
    decimal: DecimalMark,
    time_format: str | None,
) -> Feed:
    from momostream.feeds import Feed

    return Feed(
        place, columns, time, bad_rows=bad_rows.value, on_bad=tell, encoding=encoding, delimiter=delimiter,
        decimal=decimal.value, time_format=time_format,
    )  # fmt: skip


def _opened(
    place: str, targets: list[str] | None, inputs: list[str] | None, horizon: int | None, time: str, *reading: Any
) -> Feed:
    """The feed with the columns that are needed, as far as they are named."""
    from momostream.feeds import FeedError

    if not targets and horizon is None:
        raise ValueError("name what to predict with --target, or how far to forecast with --horizon")
    named = (*(targets or ()), *(inputs or ()))
    all_named = bool(targets) and (bool(inputs) or horizon is not None)
    feed = _feed(place, named if all_named else None, None if time == "none" else time, *reading)
    try:
        if not feed.readings:
            raise FeedError(f"{feed.name}: has no rows")
        for name in named:
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


def _saved_run(save: Path, resume: bool) -> tuple[Any, Checkpoint | None]:
    """The model and where its run stands; both None where there is no such file yet."""
    from momostream import persistence
    from momostream.container import FileFormatError
    from momostream.running import Checkpoint

    if not save.exists():
        return None, None
    model, data = persistence.load_run(save)
    if data is None:
        raise FileFormatError(f"{save}: holds a model, but no run: name another file for --save")
    checkpoint = Checkpoint.from_plain(data)
    if not resume:
        raise ValueError(f"{save}: holds a run up to row {checkpoint.number}: add --resume or --overwrite")
    return model, checkpoint


def _plan(
    feed: Feed,
    targets: list[str] | None,
    inputs: list[str] | None,
    horizon: int | None,
    level: float = 0.9,
    every: int = 1,
) -> Plan:
    from momostream.running import Plan

    others = tuple(name for name in feed.readings if name not in {*(targets or ()), *(inputs or ())})
    if not targets:
        targets, others = list(others), ()
    chosen = tuple(inputs) if inputs else (others if horizon is None else ())
    return Plan(tuple(targets), chosen, feed.time, horizon, level, every)


def _check_places(places: dict[str, str | Path | None]) -> None:
    """Refuse to write where that cannot be, over what is read, or over something else that is written."""
    known: dict[str, str] = {}
    for option, place in places.items():
        if place is None or str(place) == "-":
            continue
        path = os.path.realpath(place)
        is_special = os.path.exists(path) and not os.path.isfile(path)
        if option != "FEED" and not os.path.isdir(os.path.dirname(path)):
            raise ValueError(f"{place}: there is no such folder")
        if option in {"--save", "--report"} and is_special:
            raise ValueError(f"{place}: is not a file, as {option} must be")
        # What is read and written may both be a device.
        if path in known and not is_special:
            raise ValueError(f"{place}: is named as {known[path]} and as {option}")
        known[path] = option


def _must_agree(plan: Plan, settings: dict[str, Any], checkpoint: Checkpoint | None, model: Any) -> None:
    """Refuse to go on with something else than before."""
    assert checkpoint is not None
    before, now = {**vars(checkpoint.plan), **model._get_params()}, {**vars(plan), **settings}
    for name, value in now.items():
        if value != before[name]:
            raise ValueError(f"cannot go on: {name} was {before[name]!r}, now it is {value!r}")


@contextmanager
def _named_after(feed: Feed) -> Iterator[None]:
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

    from momostream.online import MOMoGPRegressor

    kind: type = MOMoGPRegressor
    if horizon is not None:
        from momostream.forecasting import MOMoGPForecaster

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


def _sink(place: str, plan: Plan, format: Format | None, checkpoint: Checkpoint | None) -> Sink:
    from momostream.sinks import Sink

    if checkpoint is not None and checkpoint.written is None and os.path.isfile(place):
        raise ValueError(f"{place}: exists, but was not written by the run so far: name another file for --output")
    asked = None if format is None else format.value
    before = None if checkpoint is None else checkpoint.format
    if before is not None and asked not in {None, before}:
        raise ValueError(f"cannot go on: the format was {before!r}, now it is {asked!r}")
    after = None if checkpoint is None else checkpoint.written
    return Sink(place, plan.targets, plan.horizon is not None, asked or before, after)


def _work(run: Run, feed: Feed, limit: int | None, live: bool, quiet: bool, output: str) -> float:
    """Run to the end under watch; rows per second."""
    from momostream import live as views

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
    from momostream.outline import counted

    bad = f", {counted(run.feed.n_bad, 'bad row')} skipped" if run.feed.n_bad else ""
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
    from momostream.report import write_report

    facts = {"Feed": name, "Rows learnt": f"{run.n_rows:,}", "Bad rows": f"{run.feed.n_bad:,}"}
    facts["Rows per second"] = f"{speed:,.0f}"
    settings = {**vars(run.plan), **run.model._get_params()}
    command = shlex.join(["momostream", *sys.argv[1:]])
    write_report(
        path, run.track, run.model, forecast=run.forecast(), history=run.history, title=f"Forecasts of {name}",
        facts=facts, settings=settings, command=command,
    )  # fmt: skip
