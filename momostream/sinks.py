"""Where predictions go: CSV or JSON lines, in a file that can be cut back to a row, or in a pipe."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from momostream.forecast import Forecast
from momostream.tracking import Outlook

__all__ = ["FORMATS", "Sink", "Written"]

FORMATS = ("csv", "jsonl")
SIDES = ("mean", "lower", "upper")
# Bytes by which a file is known again.
TAIL = 256


class Written(NamedTuple):
    """How far a file has been written: bytes, and the last of them, by which it is known again."""

    position: int
    tail: bytes


class Sink:
    """Writes predictions, with the number of the row that each was made at.

    CSV has a line for each step: the row, the time and, for forecasts, the step, then for each target its mean and
    both ends of its interval. JSON lines have an object for each row. Numbers have nine digits; what is not known, or
    infinite, is empty or null.

    Parameters
    ----------
    place
        Path of a file, ``"-"`` for standard output, or a binary stream.
    targets
        Names of what is predicted.
    stepwise
        Whether predictions are forecasts of several steps.
    format
        ``"csv"`` or ``"jsonl"``; None: by the name of the file, CSV where it does not tell.
    after
        What an earlier `commit` has returned: that file is cut back to there and written on. None begins a new one.

    Examples
    --------
    >>> stream = io.BytesIO()
    >>> sink = Sink(stream, ["power"], stepwise=False)
    >>> at = np.array([[41.5]])
    >>> sink.write(7, datetime(2024, 3, 1), Outlook(at, at - 2.0, at + 2.0, None, None))
    >>> print(stream.getvalue().decode())  # doctest: +NORMALIZE_WHITESPACE
    row,time,power,power lower,power upper
    7,2024-03-01T00:00:00,41.5,39.5,43.5
    """

    def __init__(
        self,
        place: str | os.PathLike[str] | BinaryIO,
        targets: Sequence[str],
        stepwise: bool,
        format: str | None = None,
        after: Written | None = None,
    ) -> None:
        if format is None:
            format = "jsonl" if _suffix(place) in {".jsonl", ".ndjson", ".json"} else "csv"
        if format not in FORMATS:
            raise ValueError(f"format={format!r} is not accepted: use one of {', '.join(map(repr, FORMATS))}")
        self.targets, self.stepwise, self.format = tuple(targets), stepwise, format
        self._check_names()
        self._file, self.is_file, self._ours = _open(place, after)
        if format == "csv" and after is None:
            self._line(["row", *(["step"] if stepwise else []), "time", *_columns(self.targets)])

    def _check_names(self) -> None:
        names = _columns(self.targets) if self.format == "csv" else list(self.targets)
        names += ["row", "time", "step" if self.format == "csv" else "steps"]
        twice = [name for name in self.targets if names.count(name) > 1]
        if twice:
            raise ValueError(f"target {twice[0]!r} cannot be written as {self.format}: another field has that name")

    def write(self, row: int, time: Any, outlook: Outlook) -> None:
        """Write a prediction that was made at a row; a forecast has the times of its steps, others the time given."""
        values = np.stack([outlook.mean, outlook.lower, outlook.upper], axis=2)
        times = _step_times(outlook) if self.stepwise else [_time_text(time)]
        if self.format == "jsonl":
            self._write_object(row, times, values)
            return
        for step, (at, cells) in enumerate(zip(times, values.reshape(len(values), -1).tolist(), strict=True), 1):
            numbers = [f"{value:.9g}" if math.isfinite(value) else "" for value in cells]
            self._line([str(row), *([str(step)] if self.stepwise else []), "" if at is None else str(at), *numbers])
        self._pass_on()

    def _write_object(self, row: int, times: list[Any], values: NDArray[np.float64]) -> None:
        steps = [
            {"time": at}
            | {
                name: dict(zip(SIDES, (float(f"{v:.9g}") if math.isfinite(v) else None for v in sides), strict=True))
                for name, sides in zip(self.targets, by_target, strict=True)
            }
            for at, by_target in zip(times, values.tolist(), strict=True)
        ]
        record = {"row": row, "steps": steps} if self.stepwise else {"row": row, **steps[0]}
        self._file.write(json.dumps(record, allow_nan=False, ensure_ascii=False).encode() + b"\n")
        self._pass_on()

    def _line(self, cells: list[str]) -> None:
        line = ",".join(cells)
        if '"' in line or len(cells) != line.count(",") + 1 or "\n" in line or "\r" in line:
            text = io.StringIO()
            csv.writer(text, lineterminator="").writerow(cells)
            line = text.getvalue()
        self._file.write(line.encode() + b"\n")

    def _pass_on(self) -> None:
        # Who reads a pipe wants the row now.
        if not self.is_file:
            self.flush()

    def flush(self) -> None:
        """Let others see what was written."""
        try:
            self._file.flush()
        except OSError as error:
            # Python does not say which file is full.
            error.filename = error.filename or getattr(self._file, "name", None)
            raise

    def commit(self) -> Written | None:
        """Bring everything to the disk; how far the file has been written, None for a pipe."""
        self.flush()
        if not self.is_file:
            return None
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
            # What could not be written must not be tried again, and hide the error that said why.
            with suppress(OSError):
                self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _open(place: str | os.PathLike[str] | BinaryIO, after: Written | None) -> tuple[BinaryIO, bool, bool]:
    """The stream, whether it is a regular file that can be cut back, and whether it is ours to close."""
    if not isinstance(place, str | os.PathLike):
        return place, False, False
    if os.fspath(place) == "-":
        return sys.stdout.buffer, False, False
    path = Path(place)
    if path.exists() and not path.is_file():
        # A named pipe or a device.
        return path.open("wb"), False, True
    if after is None:
        return path.open("w+b"), True, True
    position, tail = after
    try:
        file = path.open("r+b")
    except FileNotFoundError:
        raise ValueError(f"{path}: is gone, so it cannot be continued: put it back, or begin anew") from None
    if os.pread(file.fileno(), len(tail), position - len(tail)) != tail:
        file.close()
        raise ValueError(f"{path}: is not the file that was written before, so it is not continued")
    file.truncate(position)
    file.seek(position)
    return file, True, True


def _suffix(place: Any) -> str:
    return Path(place).suffix.lower() if isinstance(place, str | os.PathLike) else ""


def _columns(targets: Sequence[str]) -> list[str]:
    return [name + side for name in targets for side in ("", " lower", " upper")]


def _step_times(outlook: Outlook) -> list[Any]:
    if outlook.times is None:
        return [None] * len(outlook.mean)
    # Aware times are in UTC.
    aware = isinstance(outlook.law, Forecast) and outlook.law.zone is not None
    return [_time_text(time, "+00:00" if aware else "") for time in outlook.times.tolist()]


def _time_text(time: Any, zone: str = "") -> Any:
    """ISO 8601 for dates; numbers stay numbers."""
    if isinstance(time, datetime):
        return time.isoformat() + zone
    return int(time) if isinstance(time, float) and time.is_integer() else time
