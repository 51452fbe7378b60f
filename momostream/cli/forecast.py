"""``momostream forecast``: predict with a saved model."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from momostream.cli.command import command
from momostream.cli.feeds import open_files, without_password
from momostream.cli.messages import import_models, notify, require_matplotlib
from momostream.cli.models import SavedModel, is_store, keys_of, load_models
from momostream.cli.options import (
    PREDICTIONS,
    BadRows,
    FileFormat,
    LevelOption,
    ModelArgument,
    ModelKey,
    OutputFormat,
    OverwriteOption,
    SkipBadRows,
    steps_or_span,
)
from momostream.cli.outputs import STORE, check_new, open_channels

__all__ = ["forecast"]


@dataclass(frozen=True)
class Writing:
    """Destination of forecasts."""

    output: Annotated[
        str,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Where to write predictions: a file, or - for standard output.",
            rich_help_panel=PREDICTIONS,
        ),
    ] = "-"
    format: OutputFormat = None
    level: LevelOption = 0.9
    overwrite: OverwriteOption = False
    plot: Annotated[Path | None, typer.Option(metavar="FILE", help="Plot the forecast as PNG, SVG or PDF.")] = None


@command
def forecast(
    model: ModelArgument,
    writing: Writing,
    file_format: FileFormat,
    feed: Annotated[
        str | None,
        typer.Argument(metavar="[FEED]", help="Rows whose targets are predicted, for a model without a horizon."),
    ] = None,
    horizon: Annotated[
        Any,
        typer.Option(
            "--horizon",
            "-n",
            parser=steps_or_span,
            metavar="N|SPAN",
            help="How far to forecast: a number of rows, or a span such as 6h. [default: the horizon of the model]",
        ),
    ] = None,
    bad_rows: SkipBadRows = BadRows.stop,
    key: ModelKey = None,
) -> None:
    """Predict with a saved model, without learning.

    - `momostream forecast model.momo --horizon 6`
    - `momostream forecast soft-sensor.momo today.csv -o predicted.csv`
    - `momostream forecast farm.db --key T01`

    A model that was trained with a horizon forecasts the rows after the last one it learnt. A model without a horizon
    predicts the targets of each row of FEED.
    """
    import_models()
    from momostream.estimators.regressor import MOMoGPRegressor
    from momostream.runs.run import ONLY

    _check_options(model, writing, key)
    # A store of one model has it under this name.
    nameless = {None, ONLY}
    for number, saved in enumerate(load_models(model, key)):
        is_regressor = isinstance(saved.model, MOMoGPRegressor)
        is_one_of_many = key is None and saved.key not in nameless
        _check_kind(model, is_regressor, feed)
        if not _has_learnt(model, saved, is_one_of_many):
            continue
        if feed is None:
            _write_forecast(saved, horizon, writing, is_first=number == 0)
            continue
        if writing.plot is not None or horizon is not None:
            raise ValueError(f"{model}: contains a regressor: --horizon and --plot are for forecasters")
        if is_one_of_many:
            raise ValueError(f"{model}: contains several models: choose one with --key")
        _predict_rows(saved, feed, file_format, bad_rows, writing)
        return


def _check_options(path: Path, writing: Writing, key: str | None) -> None:
    from momostream.feeds.outlets import is_outlet

    if writing.plot is not None:
        require_matplotlib("--plot")
        if key is None and is_store(path) and len(keys_of(path)) > 1:
            raise ValueError(f"{path}: contains several models: choose one with --key to plot it")
    if writing.output == STORE or is_outlet(writing.output):
        raise ValueError(
            f"--output {without_password(writing.output)}: forecast writes to a file or to standard output only"
        )
    if not writing.overwrite:
        check_new(writing.output)


def _check_kind(path: Path, is_regressor: bool, feed: str | None) -> None:
    if is_regressor and feed is None:
        raise ValueError(f"{path}: contains a regressor, which needs a FEED with its inputs")
    if not is_regressor and feed is not None:
        raise ValueError(f"{path}: contains a forecaster, which takes no FEED: it continues after its last row")


def _has_learnt(path: Path, saved: SavedModel, is_one_of_many: bool) -> bool:
    """Whether a model can predict; if it is the only one that was asked for, it must."""
    from momostream.show.outline import has_learnt

    if has_learnt(saved.model):
        return True
    if not is_one_of_many:
        raise ValueError(f"{path}: the model has not learnt any target value yet")
    notify(f"{path}: skipped {saved.key!r}: its model has not learnt any target value yet")
    return False


def _predict_rows(saved: SavedModel, feed: str, file_format: FileFormat, bad_rows: BadRows, writing: Writing) -> None:
    """Predict the targets of each row of a feed."""
    from momostream.runs.fleet import Fleet
    from momostream.runs.plan import Plan
    from momostream.runs.run import ONLY, Run

    model, column = saved.model, saved.key_column
    model.freeze()
    clock = model.clock if isinstance(model.clock, str) else None
    if column is not None:
        # A feed of one machine need not have a column of keys.
        with open_files(feed, None, clock, file_format, bad_rows) as source:
            column = column if column in source.columns else None
    plan = Plan(tuple(map(str, model.targets)), tuple(map(str, model.inputs)), clock, None, writing.level)
    plan = replace(plan, key=column)
    fleet = Fleet(type(model)())
    fleet.add(ONLY if column is None else saved.key, model)
    only = None if column is None else {saved.key}
    with open_files(feed, plan.inputs, clock, file_format, bad_rows, column) as source:
        work = Run(source, fleet, plan, bad_rows=bad_rows.value, on_bad=notify, only=only)
        with open_channels(work, {"--output": writing.output}, writing.format, writing.overwrite):
            work.run()


def _write_forecast(saved: SavedModel, horizon: int | str | None, writing: Writing, is_first: bool) -> None:
    """Write the forecast of one model, and plot it."""
    from momostream.distributions.predicted import PredictedValues
    from momostream.feeds.formats import Row
    from momostream.feeds.outputs import PredictionLines, format_for

    model, output = saved.model, writing.output
    targets = tuple(map(str, model.series)) if saved.about is None else tuple(saved.about["plan"]["targets"])
    format = format_for(output) if writing.format is None else writing.format.value
    distribution = model.forecast(horizon or model.horizon, with_dist=True)
    lines = PredictionLines(targets, True, format, saved.key_column)
    row = Row(model.n_rows, 0, None, {}, saved.key)
    text = lines.text(row, PredictedValues.of(distribution, targets, writing.level))
    _write_text(output, text, lines.header, is_first)
    if writing.plot is not None:
        # Here and not above: most forecasts are not drawn. Without pyplot, which would choose a backend.
        from momostream.show.plots import plot_forecast

        plot_forecast(distribution).savefig(writing.plot, dpi=150)
        notify(f"plot: {writing.plot}")


def _write_text(output: str, text: str, header: str | None, is_first: bool) -> None:
    """Create the output with the first text, and append the others to it."""
    from momostream.feeds.outputs import Sink

    if output != "-" and not is_first:
        with open(output, "ab") as file:
            file.write(text.encode() + b"\n")
        return
    with Sink(output, header if is_first else None) as sink:
        sink.write(text)
        sink.commit()
