"""Gross errors of sensors, set aside before a model sees them: `Readings`.

A reading is set aside if nothing that its column has shown explains it: a *jump* out of the range by half of it, and
by a multiple of the largest changes so far, or out of the range by all of it; or a *code* for a missing reading, such
as -9999, out of the range. To the model it is a missing reading. If the next readings stay at the new level, they are a
change of level, and taken up: after 30, and more for a jump of more than eight times the usual, up to 50, half as many
for each change of level that was taken up before; after eight if their changes are as large as those before, which
those of a run in other units are not; after two if a fifth of the columns jumps together, or the column is young; codes
after 200. A *stuck* sensor, which repeats a reading far longer than it ever has while other columns move, is counted,
for 60 rows at most, and its readings stay: they are nothing unseen.

A column may go five times further if it already moved by more than its third largest change, in the same direction, in
the row before: an excursion often is announced, an error is not. And it may go further if it has company: if at least
two columns, and four times as many as by chance, move by one to three times their third largest change in the same row,
criteria are wider, up to five times for columns whose largest changes are far above the mean one (rain, emissions),
hardly for others.

The criteria use ranks (the third largest change, the third highest and lowest reading), so that one error among the
first readings does not hide the next. Nothing but codes is judged before a column has moved 30 times; five times if it
has rested through 200 readings, and the jump is more than twice the last one. Of such a column, the first five moves
are held for a reading if they are the largest by far; the next one is taken up, whatever its size on the same side.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from momostream.kernels.readings import CODE, JUMP, N_STATE, STUCK, screen_rows
from momostream.stream.restoring import check_readings

__all__ = ["Readings"]

Array = NDArray[np.float64]

#: Values that stand for missing readings.
CODES = np.array(
    [-9999.0, 9999.0, -999.0, 999.0, -99999.0, 99999.0, -999.9, -9999.9, -999.99, -99.99, -200.0, -99.0, -32768.0,
     32767.0, 65535.0, -1e20, 1e20]
)  # fmt: skip
#: Numbers that earlier versions knew of a column.
EARLIER_STATES = (31, 35)
#: Why a reading is set aside.
REASONS = {JUMP: "jump", CODE: "code"}


class Readings:
    """What each column has shown, to judge its next reading by.

    Parameters
    ----------
    n_columns
        Number of columns; more may join, see `widen`.

    Attributes
    ----------
    n_rows
        Rows seen.
    counts
        Shape ``(3, n_columns)``: jumps and codes, which are set aside, and stuck readings.
    newest
        The newest of each column that was set aside, shape ``(3, n_columns)``: number of its row, value, reason; NaN
        where there is none.

    Examples
    --------
    >>> readings = Readings(1)
    >>> for t in range(200):
    ...     _ = readings.screen(np.array([[10.0 + np.sin(t)]]))
    >>> row = np.array([[500.0]])
    >>> readings.screen(row), row
    (1, array([[nan]]))
    >>> readings.rejected(["power"])
    {'power': {'count': 1, 'jump': 1, 'code': 0, 'row': 200, 'value': 500.0, 'reason': 'jump'}}
    """

    def __init__(self, n_columns: int) -> None:
        self.n_rows = 0
        self._states = np.zeros((n_columns, N_STATE))
        self.counts = np.zeros((3, n_columns))
        self.newest = np.full((3, n_columns), np.nan)

    @property
    def n_columns(self) -> int:
        """Number of columns."""
        return len(self._states)

    def screen(self, rows: Array, company: Array | None = None) -> int:
        """Make gross errors in the next rows ``(n_rows, n_columns)`` NaN, in place; returns how many there were.

        ``company`` ``(n_rows, 2)`` holds how many other columns move far in each row, and how many would by chance;
        those of these rows are added, in place.
        """
        if company is None:
            company = np.zeros((len(rows), 2))
        given, verdicts = rows.copy(), np.zeros(rows.shape)
        n_bad = self.note(given, verdicts) if screen_rows(CODES, rows, self._states, company, verdicts) else 0
        self.n_rows += len(rows)
        return n_bad

    def note(self, given: Array, verdicts: Array) -> int:
        """Count readings of screened rows that were not good; returns how many were set aside.

        ``n_rows`` still is the number of the first of these rows.
        """
        n_bad = 0
        for i, j in np.argwhere(verdicts):
            self.counts[int(verdicts[i, j]) - 1, j] += 1.0
            if verdicts[i, j] != STUCK:
                n_bad += 1
                self.newest[:, j] = self.n_rows + i, given[i, j], verdicts[i, j]
        return n_bad

    @property
    def row_arrays(self) -> tuple[Array, Array, Array]:
        """States, and room for the verdicts on a row and for the row, for `momostream.kernels.door`."""
        return self._states, np.zeros((1, self.n_columns)), np.zeros((1, self.n_columns))

    def widen(self, n_columns: int) -> None:
        """Make room for more columns."""
        more = Readings(n_columns)
        old = self.n_columns
        more._states[:old], more.counts[:, :old], more.newest[:, :old] = self._states, self.counts, self.newest
        more.n_rows = self.n_rows
        self.__dict__ = more.__dict__

    def rejected(self, names: Sequence[Hashable]) -> dict[Hashable, dict[str, Any]]:
        """Readings set aside, by column: their number, by reason, and row, value and reason of the newest."""
        found: dict[Hashable, dict[str, Any]] = {}
        for j, name in enumerate(names):
            if self.counts[: len(REASONS), j].any():
                row, value, reason = self.newest[:, j].tolist()
                by_reason = dict(zip(REASONS.values(), map(int, self.counts[: len(REASONS), j]), strict=True))
                found[name] = {
                    "count": sum(by_reason.values()), **by_reason,
                    "row": int(row), "value": value, "reason": REASONS[int(reason)],
                }  # fmt: skip
        return found

    def stuck(self, names: Sequence[Hashable]) -> dict[Hashable, int]:
        """Stuck readings, by column."""
        return {name: int(n) for name, n in zip(names, self.counts[STUCK - 1], strict=True) if n}

    def state(self) -> dict[str, Any]:
        """Everything as plain data."""
        return {
            "n_rows": self.n_rows, "states": self._states.copy(), "counts": self.counts.copy(),
            "newest": self.newest.copy(),
        }  # fmt: skip

    @classmethod
    def from_state(cls, state: dict[str, Any], n_columns: int, part: str = "readings") -> Readings:
        """Restore from `state`, that of ``n_columns``; ``part`` is its name in messages."""
        earlier = [n for n in EARLIER_STATES if np.shape(state.get("states", ())) == (n_columns, n)]
        check_readings(part, state, n_columns, earlier[0] if earlier else N_STATE, list(REASONS))
        readings = cls(n_columns)
        readings.n_rows = state["n_rows"]
        readings.counts, readings.newest = state["counts"].copy(), state["newest"].copy()
        # Entries that earlier versions did not have come last.
        readings._states[:, : state["states"].shape[1]] = state["states"]
        return readings
