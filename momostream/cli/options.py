"""The options of all commands, each written once; those that belong together form a group.

`momostream.cli.command.command` turns a function of such groups into a command.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

__all__ = [
    "Alarms",
    "BadRows",
    "Columns",
    "DecimalMark",
    "Display",
    "FeedArgument",
    "FileArgument",
    "FileFormat",
    "LastOption",
    "LineFormat",
    "LevelOption",
    "LimitOption",
    "ModelArgument",
    "ModelKey",
    "ModelSettings",
    "OutputFormat",
    "OverwriteOption",
    "Predictions",
    "QuietOption",
    "Reading",
    "SeedOption",
    "SkipBadRows",
    "StartOption",
    "Storing",
    "Table",
    "steps_or_span",
]

# Headings of groups of options in the help of a command.
READING, PREDICTIONS, MODEL, STORING = "Reading the feed", "Predictions", "The model", "Resuming, and many models"


class BadRows(StrEnum):
    """Policy for rows that cannot be read."""

    stop = "stop"
    skip = "skip"


class LineFormat(StrEnum):
    """Format of the predictions."""

    csv = "csv"
    jsonl = "jsonl"


class Table(StrEnum):
    """Lines that a store keeps beside models."""

    outputs = "outputs"
    alarms = "alarms"
    dead = "dead"


class DecimalMark(StrEnum):
    """The character before the decimals."""

    point = "."
    comma = ","


def steps_or_span(value: int | str) -> int | str:
    """A whole number of rows, or a span of time.

    Examples
    --------
    >>> steps_or_span("12"), steps_or_span("6h")
    (12, '6h')
    """
    from momostream.horizon.durations import parse_duration

    text = str(value).strip()
    if text.isdecimal() and int(text) >= 1:
        return int(text)
    try:
        parse_duration(text)
    except ValueError:
        raise typer.BadParameter(
            f"{text!r}: expected a whole number of rows, or a span such as 6h, 90min or 1d"
        ) from None
    return text


# ---------------------------------------------------------------------- arguments and single options

FeedArgument = Annotated[
    str,
    typer.Argument(
        metavar="FEED",
        help="CSV, JSON lines or line protocol, plain or gzip, or Parquet: a file, a folder of files, or - for "
        "standard input. Or a broker: mqtt://HOST/TOPIC, kafka://HOST:PORT/TOPIC; or opc.tcp://HOST/?nodes=PATH.",
    ),
]
FileArgument = Annotated[
    str,
    typer.Argument(
        metavar="FEED",
        help="CSV, JSON lines or line protocol, plain or gzip, or Parquet: a file, a folder, or - for standard input.",
    ),
]
ModelArgument = Annotated[
    Path, typer.Argument(metavar="MODEL", help="File written by fit or model.save(), or store written by run.")
]
ModelKey = Annotated[
    str | None, typer.Option("--key", metavar="KEY", help="Key of one model in a store of many. [default: all]")
]
OutputFormat = Annotated[
    LineFormat | None,
    typer.Option(
        "--format",
        help="Format of the predictions. [default: from the file name, else csv]",
        rich_help_panel=PREDICTIONS,
    ),
]
LevelOption = Annotated[float, typer.Option(help="Probability of the intervals.", rich_help_panel=PREDICTIONS)]
LimitOption = Annotated[int | None, typer.Option(min=1, help="Stop after this many rows.", rich_help_panel=READING)]
StartOption = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        help="Leave out rows before this time, such as 2024-03-01 or 2024-03-01T06:00.",
        rich_help_panel=READING,
    ),
]
LastOption = Annotated[
    Any,
    typer.Option(
        parser=steps_or_span,
        metavar="N|SPAN",
        help="Take only the last rows of files: a number of rows, or a span such as 7d. A run that resumes leaves out "
        "nothing.",
        rich_help_panel=READING,
    ),
]
SkipBadRows = Annotated[
    BadRows,
    typer.Option(
        "--bad-rows", help="Stop at a row that cannot be read, or skip and report it.", rich_help_panel=READING
    ),
]
OverwriteOption = Annotated[
    bool, typer.Option("--overwrite", help="Replace files that exist.", rich_help_panel=PREDICTIONS)
]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Print errors only.")]
SeedOption = Annotated[
    int | None,
    typer.Option(
        help="Random seed: the same seed and rows give the same numbers. [default: 0]",
        rich_help_panel=MODEL,
    ),
]


# ---------------------------------------------------------------------- groups


@dataclass(frozen=True)
class Columns:
    """Columns to predict, columns to predict from, and the time."""

    target: Annotated[
        list[str] | None,
        typer.Option("--target", "-t", metavar="COLUMN", help="Column to predict. Repeat it for more columns."),
    ] = None
    input: Annotated[
        list[str] | None,
        typer.Option(
            "--input",
            "-i",
            metavar="COLUMN",
            help="Column to predict from. Repeat it for more columns. [default: without --horizon, all other numbers]",
        ),
    ] = None
    # int, str or None: typer takes no union.
    horizon: Annotated[
        Any,
        typer.Option(
            "--horizon",
            "-n",
            parser=steps_or_span,
            metavar="N|SPAN",
            help="How far to forecast: a number of rows, or a span such as 6h. Without it, targets are predicted from "
            "the other columns of their row.",
        ),
    ] = None
    time: Annotated[
        str,
        typer.Option(
            metavar="COLUMN",
            help="Column of the timestamp. 'auto' searches for one (in messages of a broker: the field 'time'), "
            "'none' numbers the rows.",
            rich_help_panel=READING,
        ),
    ] = "auto"


@dataclass(frozen=True)
class FileFormat:
    """Format of a feed."""

    encoding: Annotated[str, typer.Option(help="Text encoding of the feed.", rich_help_panel=READING)] = "utf-8"
    delimiter: Annotated[
        str | None,
        typer.Option(
            help="Character between the cells of a CSV feed. [default: detected in its first line]",
            rich_help_panel=READING,
        ),
    ] = None
    decimal: Annotated[DecimalMark, typer.Option(help="Decimal mark of a CSV feed.", rich_help_panel=READING)] = (
        DecimalMark.point
    )
    time_format: Annotated[
        str | None,
        typer.Option(
            metavar="FORMAT",
            help="Format of the timestamps, as in strptime, or epoch: numbers that count from 1970. "
            "[default: ISO 8601 or numbers]",
            rich_help_panel=READING,
        ),
    ] = None


@dataclass(frozen=True)
class ModelSettings:
    """Parameters of the model."""

    set: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="Parameter of the model, such as --set max_points=128. Repeat it for more parameters.",
            rich_help_panel=MODEL,
        ),
    ] = None
    seed: SeedOption = None
    bounds: Annotated[
        list[str] | None,
        typer.Option(
            "--bounds",
            metavar="NAME=LOW:HIGH[:circular]",
            help="Limits of a target, such as --bounds power=0:2050; leave out a side that has none. Values beyond "
            "count as lying on them. direction=0:360:circular is an angle. Repeat it for more targets; those of others "
            "are found (auto). none: no limits.",
            rich_help_panel=MODEL,
        ),
    ] = None


@dataclass(frozen=True)
class Predictions:
    """Destination, format and frequency of predictions."""

    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Where to write predictions: a file, - for standard output, mqtt://HOST/TOPIC, "
            "kafka://HOST:PORT/TOPIC. [default: the store of --store, else standard output]",
            rich_help_panel=PREDICTIONS,
        ),
    ] = None
    format: OutputFormat = None
    level: LevelOption = 0.9
    every: Annotated[
        Any,
        typer.Option(
            parser=steps_or_span,
            metavar="N|SPAN",
            help="Predict only every N-th row, or once per span such as 1h; all rows are learnt. The newest row of a "
            "run is always forecast.",
            rich_help_panel=PREDICTIONS,
        ),
    ] = 1
    overwrite: OverwriteOption = False


@dataclass(frozen=True)
class Alarms:
    """Alarms for unexpected values."""

    alarms: Annotated[
        str | None,
        typer.Option(
            metavar="DESTINATION",
            help="Where to write alarms: a file, - for standard output, a broker, or 'store'. A value outside its "
            "predicted interval is an alarm.",
            rich_help_panel=PREDICTIONS,
        ),
    ] = None
    alarm_level: Annotated[
        float, typer.Option(help="Probability of the interval for alarms.", rich_help_panel=PREDICTIONS)
    ] = 0.999
    false_alarms: Annotated[
        str | None,
        typer.Option(
            metavar="RATE",
            help="Write alarms as events, one for each fault, at this rate of false ones of each machine: "
            "'1 per week', '1 per 5000 rows', or a share of rows.",
            rich_help_panel=PREDICTIONS,
        ),
    ] = None
    alarm: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CONDITION",
            help="Warn ahead: 'power < 200 within 6h' is an alarm from the first to the last forecast that makes it "
            "likely. Repeat for several conditions; needs --horizon.",
            rich_help_panel=PREDICTIONS,
        ),
    ] = None
    alarm_probability: Annotated[
        float,
        typer.Option(help="Probability from which a condition of --alarm is likely.", rich_help_panel=PREDICTIONS),
    ] = 0.5


@dataclass(frozen=True)
class Storing:
    """The store of a run, its commits, and many models."""

    store: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Save models, position in the feed and predictions in this file, and resume from it.",
            rich_help_panel=STORING,
        ),
    ] = None
    commit_every: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Rows between two commits. [default: 200 per key, between 5000 and 100000]",
            rich_help_panel=STORING,
        ),
    ] = None
    commit_seconds: Annotated[
        float, typer.Option(min=0.0, help="Longest time between two commits (s).", rich_help_panel=STORING)
    ] = 10.0
    keep: Annotated[
        str | None,
        typer.Option(
            metavar="SPAN",
            help="Remove predictions, alarms and rejected rows from the store after this time, such as 30d. "
            "[default: keep them]",
            rich_help_panel=STORING,
        ),
    ] = None
    memory: Annotated[
        int,
        typer.Option(min=0, help="Memory for loaded models (MB); the rest stay on disk.", rich_help_panel=STORING),
    ] = 1024
    share: Annotated[
        str | None,
        typer.Option(
            metavar="K/N",
            help="Process part K of N of the keys. Each part needs its own process and its own store.",
            rich_help_panel=STORING,
        ),
    ] = None
    warm_start: Annotated[
        bool,
        typer.Option(
            "--warm-start",
            help="Start the model of a new key from the hyper-parameters of other keys. Not with --horizon.",
            rich_help_panel=STORING,
        ),
    ] = False
    kin: Annotated[bool, typer.Option("--kin", hidden=True, help="Earlier name of --warm-start.")] = False
    workers: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Processes that share the keys: the same output in less time. [default: this process only]",
            rich_help_panel=STORING,
        ),
    ] = None


@dataclass(frozen=True)
class Display:
    """Views of a run beside its predictions."""

    report: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write an HTML report with scores and figures at the end.",
            rich_help_panel=PREDICTIONS,
        ),
    ] = None
    live: Annotated[
        bool,
        typer.Option("--live", help="Draw forecasts on the terminal during the run.", rich_help_panel=PREDICTIONS),
    ] = False
    serve: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Serve a live page during the run, such as --serve 127.0.0.1:8080.",
            rich_help_panel=PREDICTIONS,
        ),
    ] = None


@dataclass(frozen=True)
class Reading:
    """Extent of the feed that is read, and policy for rows that cannot be used."""

    follow: Annotated[
        bool,
        typer.Option("--follow", "-f", help="Wait for more rows at the end of the file.", rich_help_panel=READING),
    ] = False
    sequence: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="MQTT only: field with the number of a message in its topic (1, 2, 3, ...), to drop repeated "
            "messages.",
            rich_help_panel=READING,
        ),
    ] = None
    limit: LimitOption = None
    bad_rows: Annotated[
        BadRows | None,
        typer.Option(
            "--bad-rows",
            help="Stop at a row that cannot be used, or skip it. [default: skip with --key or --store, else stop]",
            rich_help_panel=READING,
        ),
    ] = None
    dead_letters: Annotated[
        str | None,
        typer.Option(
            metavar="DESTINATION",
            help="Where to write rejected rows, with the reason: a file or a broker. [default: the store]",
            rich_help_panel=READING,
        ),
    ] = None
    start: StartOption = None
    last: LastOption = None
