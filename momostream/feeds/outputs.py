"""Outputs: predictions and alarms as lines of text, and the files and pipes that lines are written to."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, Self

import numpy as np

from momostream.distributions.forecast import Forecast
from momostream.distributions.predicted import PredictedValues
from momostream.feeds.formats import Row

if TYPE_CHECKING:
    from momostream.estimators.monitor import FaultEvent

__all__ = [
    "FORMATS",
    "Lines",
    "PredictionLines",
    "Sink",
    "Written",
    "alarm_texts",
    "event_text",
    "format_for",
    "time_text",
]

# A spreadsheet takes texts that begin so for formulas.
FORMULA_SIGNS = frozenset("=+-@\t\r\n")
FORMATS = ("csv", "jsonl")
LINE_END = "\r\n"
SIDES = ("mean", "lower", "upper")
# Bytes by which a file is recognised.
TAIL = 256


class Written(NamedTuple):
    """The end of a file that is written: number of bytes, and the last of them, by which it is recognised."""

    position: int
    tail: bytes


def format_for(target: Any) -> str:
    """The format that the extension of a file asks for, else CSV."""
    suffix = Path(target).suffix.lower() if isinstance(target, str | os.PathLike) else ""
    return "jsonl" if suffix in {".jsonl", ".ndjson", ".json"} else "csv"


class PredictionLines:
    """Predictions as text, with the number of the row at which each was made.

    CSV has a line for each step: the key where there are keys, the row, the time and, for forecasts, the step, then for
    each target its mean and both ends of its interval. JSON lines have an object for each row. Numbers have nine
    digits; unknown and infinite values are empty or null.

    Parameters
    ----------
    targets
        Names of the targets.
    stepwise
        Whether predictions are forecasts of several steps.
    format
        ``"csv"`` or ``"jsonl"``.
    key
        Column of the keys; None where there are none.

    Examples
    --------
    >>> import numpy as np
    >>> lines = PredictionLines(["power"], stepwise=False, format="csv", key="turbine")
    >>> at = np.array([[41.5]])
    >>> print(lines.header)
    turbine,row,time,power,power lower,power upper
    >>> lines.text(Row(7, 310, datetime(2024, 3, 1), {}, "T01"), PredictedValues(at, at - 2.0, at + 2.0, None, None))
    'T01,7,2024-03-01T00:00:00,41.5,39.5,43.5'
    """

    def __init__(self, targets: Sequence[str], stepwise: bool, format: str = "csv", key: str | None = None) -> None:
        if format not in FORMATS:
            raise ValueError(f"format={format!r} is not accepted: use one of {', '.join(map(repr, FORMATS))}")
        self.targets, self.stepwise, self.format, self.key = tuple(targets), stepwise, format, key
        self._check_names()
        self._csv = ",".join(["%.9g"] * (len(SIDES) * len(self.targets)))
        sides = ", ".join(f'"{side}": %.9g' for side in SIDES)
        self._json = ", ".join(f"{_json(name).replace('%', '%%')}: {{{sides}}}" for name in self.targets)

    def _check_names(self) -> None:
        names = _columns(self.targets) if self.format == "csv" else list(self.targets)
        names += ["row", "time", "step" if self.format == "csv" else "steps", *([] if self.key is None else [self.key])]
        twice = [name for name in (*self.targets, self.key) if names.count(str(name)) > 1]
        if twice:
            what = "key" if twice[0] == self.key else "target"
            raise ValueError(f"{what} {twice[0]!r} cannot be written as {self.format}: another field has that name")

    @property
    def header(self) -> str | None:
        """The first line of a CSV; None for JSON lines."""
        if self.format != "csv":
            return None
        key = [] if self.key is None else [self.key]
        return _csv_line([*key, "row", *(["step"] if self.stepwise else []), "time", *_columns(self.targets)])

    def text(self, row: Row, predicted: PredictedValues) -> str:
        """A prediction that was made at a row; a forecast has the times of its steps, others that of the row."""
        times = _step_times(predicted) if self.stepwise else [time_text(row.time)]
        steps = zip(predicted.mean.tolist(), predicted.lower.tolist(), predicted.upper.tolist(), strict=True)
        by_step = [tuple(chain.from_iterable(zip(*step, strict=True))) for step in steps]
        if self.format == "jsonl":
            return self._object(row, times, by_step)
        begin = [] if self.key is None else [str(row.key)]
        lines = []
        for number, (at, values) in enumerate(zip(times, by_step, strict=True), 1):
            which = [str(row.number), *([str(number)] if self.stepwise else []), "" if at is None else str(at)]
            lines.append(f"{_csv_line([*begin, *which])},{_numbers(self._csv, values, '')}")
        return "\n".join(lines)

    def _object(self, row: Row, times: list[Any], by_step: list[tuple[float, ...]]) -> str:
        key = "" if self.key is None else f"{_json(self.key)}: {_json(row.key)}, "
        steps = [
            f'"time": {_json(at)}, {_numbers(self._json, values, "null")}'
            for at, values in zip(times, by_step, strict=True)
        ]
        if not self.stepwise:
            return f'{{{key}"row": {row.number}, {steps[0]}}}'
        return f'{{{key}"row": {row.number}, "steps": [{", ".join(f"{{{step}}}" for step in steps)}]}}'


# The earlier name, for one version.
Lines = PredictionLines


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _numbers(form: str, values: tuple[float, ...], missing: str) -> str:
    """Numbers of nine digits put into a form."""
    # All at once takes a tenth of the time that one after the other takes.
    if math.isfinite(sum(values)):
        return form % values
    texts = (f"{value:.9g}" if math.isfinite(value) else missing for value in values)
    return form.replace("%.9g", "%s") % tuple(texts)


def alarm_texts(row: Row, predicted: PredictedValues, targets: Sequence[str], level: float) -> list[str]:
    """A JSON object for each target whose value lies outside its prediction interval.

    Examples
    --------
    >>> import numpy as np
    >>> at = np.array([[40.0, 1.0]])
    >>> row = Row(7, 310, datetime(2024, 3, 1), {"power": 48.0, "load": 1.5}, "T01")
    >>> print(*alarm_texts(row, PredictedValues(at, at - 2.0, at + 2.0, None, None), ["power", "load"], 0.999))
    {"key": "T01", "row": 7, "time": "2024-03-01T00:00:00", "target": "power", "value": 48.0, "lower": 38.0,
     "upper": 42.0, "level": 0.999}
    """
    texts = []
    begin = ({} if row.key is None else {"key": row.key}) | {"row": row.number, "time": time_text(row.time)}
    values = np.array([row.values.get(name, np.nan) for name in targets], dtype=np.float64)
    inside = predicted.circles(targets).is_inside(values, predicted.lower[0], predicted.upper[0])
    columns = predicted.lower[0].tolist(), predicted.upper[0].tolist(), inside.tolist()
    for name, low, high, is_inside in zip(targets, *columns, strict=True):
        value = row.values.get(name)
        if value is not None and not math.isnan(low) and not is_inside:
            sides = {"lower": low, "upper": high}
            ends = {side: float(f"{end:.9g}") if math.isfinite(end) else None for side, end in sides.items()}
            texts.append(_json(begin | {"target": name, "value": value, **ends, "level": level}))
    return texts


def event_text(row: Row, event: FaultEvent) -> str:
    """An event as a JSON object, at the row with which it begins or has ended.

    Examples
    --------
    >>> from momostream.estimators.monitor import Departure, FaultEvent
    >>> times = datetime(2024, 3, 1), datetime(2024, 3, 1, 5)
    >>> event = FaultEvent(811, 841, *times, 6.25, {"power": Departure(0.0, 912.5, -9.5)}, False, False)
    >>> print(event_text(Row(852, 310, datetime(2024, 3, 1, 7), {"power": 900.0}, "T01"), event))
    {"key": "T01", "row": 852, "time": "2024-03-01T07:00:00", "event": 812, "open": false,
     "begin": "2024-03-01T00:00:00", "end": "2024-03-01T05:00:00", "n_rows": 31, "severity": 6.25, "columns":
     {"power": {"observed": 0.0, "expected": 912.5, "deviations": -9.5}}}
    """
    said: dict[str, Any] = ({} if row.key is None else {"key": row.key}) | {
        "row": row.number, "time": time_text(row.time), "event": event.begin + 1, "open": event.is_open,
        "begin": time_text(event.begin_time), "end": None if event.is_open else time_text(event.end_time),
        "n_rows": event.end - event.begin + 1, "severity": float(f"{event.severity:.4g}"),
        "columns": {
            str(name): {side: _finite(value) for side, value in part._asdict().items()}
            for name, part in event.columns.items()
        },
    }  # fmt: skip
    return _json(said)


def _finite(value: float) -> float | None:
    return float(f"{value:.6g}") if math.isfinite(value) else None


class Sink:
    """A file of lines that can be cut back to what it was at a commit, or a pipe.

    Parameters
    ----------
    target
        Path of a file, ``"-"`` for standard output, or a binary stream.
    header
        First line of a new file.
    after
        The result of an earlier `commit`: the file is cut back to there and continued. None begins a new one.

    Examples
    --------
    >>> stream = io.BytesIO()
    >>> sink = Sink(stream, "row,power")
    >>> sink.write("7,41.5")
    >>> print(stream.getvalue().decode())
    row,power
    7,41.5
    """

    def __init__(
        self, target: str | os.PathLike[str] | BinaryIO, header: str | None = None, after: Written | None = None
    ) -> None:
        self._file, self.is_file, self._ours = _open(target, after)
        if header is not None and after is None:
            self._file.write(header.encode() + b"\n")

    def write(self, text: str) -> None:
        """Write a line."""
        self._file.write(text.encode() + b"\n")
        # The reader of a pipe wants the row now.
        if not self.is_file:
            self.flush()

    def flush(self) -> None:
        """Make all lines visible to readers of the file."""
        with self._named():
            self._file.flush()

    @contextmanager
    def _named(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            # Python does not name the file on a full disk.
            error.filename = error.filename or getattr(self._file, "name", None)
            raise

    def commit(self) -> Written | None:
        """Write everything to the disk; return how far the file has been written, None for a pipe."""
        self.flush()
        if not self.is_file:
            return None
        with self._named():
            os.fsync(self._file.fileno())
        position = self._file.tell()
        length = min(position, TAIL)
        return Written(position, os.pread(self._file.fileno(), length, position - length))

    def close(self) -> None:
        """Close the file; standard output and streams that were given stay open."""
        if not self._ours:
            return
        try:
            self.flush()
        finally:
            # A second attempt to write must not hide the error of the first.
            with suppress(OSError):
                self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _open(target: str | os.PathLike[str] | BinaryIO, after: Written | None) -> tuple[BinaryIO, bool, bool]:
    """The stream, whether it is a regular file that can be cut back, and whether it is ours to close."""
    if not isinstance(target, str | os.PathLike):
        return target, False, False
    if os.fspath(target) == "-":
        return sys.stdout.buffer, False, False
    path = Path(target)
    if path.exists() and not path.is_file():
        # A named pipe or a device.
        return path.open("wb"), False, True
    if after is None:
        return path.open("w+b"), True, True
    position, tail = after
    try:
        file = path.open("r+b")
    except FileNotFoundError:
        raise ValueError(f"{path}: is missing, so it cannot be continued: put it back, or start a new run") from None
    if os.pread(file.fileno(), len(tail), position - len(tail)) != tail:
        file.close()
        raise ValueError(f"{path}: is not the file that the last run wrote: put that back, or start a new run")
    file.truncate(position)
    file.seek(position)
    return file, True, True


def _csv_line(cells: list[str]) -> str:
    cells = [_as_text(cell) for cell in cells]
    line = ",".join(cells)
    if '"' in line or len(cells) != line.count(",") + 1 or "\n" in line or "\r" in line:
        text = io.StringIO()
        # Only characters of the line end are quoted, whatever else ends lines.
        csv.writer(text, lineterminator=LINE_END).writerow(cells)
        line = text.getvalue().removesuffix(LINE_END)
    return line


def _as_text(cell: str) -> str:
    """A cell that no spreadsheet takes for a formula: one that begins like one gets an apostrophe, numbers do not.

    Examples
    --------
    >>> [_as_text(cell) for cell in ("=2+5", "@SUM(A1)", "-T1", "-1.5", "T-1")]
    ["'=2+5", "'@SUM(A1)", "'-T1", '-1.5', 'T-1']
    """
    if cell[:1] not in FORMULA_SIGNS:
        return cell
    try:
        float(cell)
    except ValueError:
        return f"'{cell}"
    return cell


def _columns(targets: Sequence[str]) -> list[str]:
    return [name + side for name in targets for side in ("", " lower", " upper")]


def _step_times(predicted: PredictedValues) -> list[Any]:
    if predicted.times is None:
        return [None] * len(predicted.mean)
    # Aware times are in UTC.
    aware = isinstance(predicted.prediction, Forecast) and predicted.prediction.zone is not None
    return [time_text(time, "+00:00" if aware else "") for time in predicted.times.tolist()]


def time_text(time: Any, zone: str = "") -> Any:
    """ISO 8601 for dates; numbers stay numbers."""
    if isinstance(time, datetime):
        return time.isoformat() + zone
    return int(time) if isinstance(time, float) and time.is_integer() else time
