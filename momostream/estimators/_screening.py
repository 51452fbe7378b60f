"""Readings on their way to a model: gross errors become missing, values beyond bounds are moved to them."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from momostream._checks import check_array, check_whole, one_of
from momostream.distributions.bounded import TargetMap
from momostream.distributions.circular import Circles
from momostream.kernels.book import AddressBook
from momostream.kernels.door import doubt_inputs, screen_row
from momostream.kernels.readings import N_STATE
from momostream.stream.limits import ShownLimits
from momostream.stream.readings import CODES, Readings

__all__ = ["BEYOND", "Screening"]

Array = NDArray[np.float64]

BEYOND = one_of("clip", "error")


class _Door(NamedTuple):
    """Arrays by address for rows that come one by one; verdicts on the inputs of a row and the row, and of targets."""

    book: AddressBook
    table: NDArray[np.int64]
    inputs: list[Array]
    targets: list[Array]


class Screening:
    """What inputs and targets have shown, and how many values were clipped.

    Attributes
    ----------
    inputs, targets
        Their readings.
    n_clipped
        Values of each target that were beyond its bounds.
    angles
        Last known reading of each target that is an angle, its turns counted; else NaN.
    shown
        Limits that targets have kept to.
    """

    def __init__(self) -> None:
        self.inputs, self.targets = Readings(0), Readings(0)
        self.n_clipped, self.angles = np.zeros(0), np.zeros(0)
        self.shown = ShownLimits(0)
        self._door: _Door | None = None

    def widen(self, n_inputs: int, n_targets: int) -> None:
        """Make room for more columns."""
        self._door = None
        for readings, n in ((self.inputs, n_inputs), (self.targets, n_targets)):
            if n > readings.n_columns:
                readings.widen(n)
        if n_targets > len(self.n_clipped):
            self.n_clipped = np.pad(self.n_clipped, (0, n_targets - len(self.n_clipped)))
            self.angles = np.pad(self.angles, (0, n_targets - len(self.angles)), constant_values=np.nan)
            self.shown.widen(n_targets)

    def screen(self, X: Array, Y: Array) -> None:
        """Make gross errors of rows NaN, in place."""
        company = np.zeros((len(Y), 2))
        if X.shape[1]:
            self.inputs.screen(X, company)
        self.targets.screen(Y, company)

    def screen_row(self, x: Array, y: Array) -> None:
        """As `screen` and then `shown.show`, for one row of arrays ``(n_columns,)``."""
        self.note_row(screen_row(x[None], y[None], self.table) > 0)

    def note_row(self, is_bad: bool) -> None:
        """Note that compiled code has screened a row by `table`, and whether some reading is not good."""
        if is_bad and self._door:
            self.inputs.note(self._door.inputs[1], self._door.inputs[0])
            self.targets.note(self._door.targets[1], self._door.targets[0])
        # As with `screen`, inputs that do not exist are not counted.
        self.inputs.n_rows += self.inputs.n_columns > 0
        self.targets.n_rows += 1

    def doubt(self, x: Array) -> None:
        """Make inputs of a row ``(n_inputs,)`` NaN, in place, that would be set aside; nothing is remembered."""
        doubt_inputs(x, self.table)

    @property
    def table(self) -> NDArray[np.int64]:
        """Arrays by address for rows that come one by one, see `momostream.kernels.door`."""
        return (self._door or self._open_door()).table

    def _open_door(self) -> _Door:
        (x_states, *inputs), (y_states, *targets) = self.inputs.row_arrays, self.targets.row_arrays
        book = AddressBook(
            CODES, x_states, y_states, np.zeros((1, 2)), inputs[0], targets[0], inputs[1], targets[1],
            *self.shown.row_arrays, np.zeros(N_STATE),
        )  # fmt: skip
        self._door = _Door(book, book.table, inputs, targets)
        return self._door

    def __getstate__(self) -> dict[str, Any]:
        # A copy has arrays of its own.
        return {**self.__dict__, "_door": None}

    def unwrap(self, Y: Array, circles: Circles) -> None:
        """Take the angles of a row, shape ``(1, n_targets)``, at the turns nearest to the last ones, in place.

        What is no angle becomes missing, and is counted.
        """
        known = circles.is_reading(Y)
        self.n_clipped += ~known[0]
        Y[:] = circles.nearest(np.where(known, Y, np.nan), self.angles)

    def keep_angles(self, Y: Array, circles: Circles) -> None:
        """Note the angles of the row that are known."""
        at = circles.columns
        self.angles[at] = np.where(np.isnan(Y[0, at]), self.angles[at], Y[0, at])

    def clip(self, Y: Array, limits: TargetMap) -> Array:
        """Rows of targets with values beyond their bounds moved to them, and counted."""
        low, high = limits.closed
        with np.errstate(invalid="ignore"):
            beyond = (low > Y) | (high < Y)
        if not beyond.any():
            return Y
        self.n_clipped += beyond.sum(axis=0)
        return np.clip(Y, low, high)

    def rejected(self, inputs: Sequence[Hashable], targets: Sequence[Hashable]) -> dict[Hashable, dict[str, Any]]:
        """Readings set aside, by column; a target counts before an input of the same name."""
        return {**self.inputs.rejected(inputs), **self.targets.rejected(targets)}

    def stuck(self, inputs: Sequence[Hashable], targets: Sequence[Hashable]) -> dict[Hashable, int]:
        """Stuck readings, by column; a target counts before an input of the same name."""
        return {**self.inputs.stuck(inputs), **self.targets.stuck(targets)}

    def clipped(self, targets: Sequence[Hashable]) -> dict[Hashable, int]:
        """Values that were clipped, by target."""
        return {name: int(n) for name, n in zip(targets, self.n_clipped, strict=True) if n}

    def state(self) -> dict[str, Any]:
        """Everything as plain data."""
        return {
            "inputs": self.inputs.state(), "targets": self.targets.state(), "n_clipped": self.n_clipped.copy(),
            "shown": self.shown.state(), "angles": self.angles.copy(),
        }  # fmt: skip

    def restore(self, state: Mapping[str, Any], n_inputs: int, n_targets: int) -> None:
        """Restore from `state`, that of so many columns."""
        self._door = None
        self.inputs = Readings.from_state(state["inputs"], n_inputs, "screening / inputs")
        self.targets = Readings.from_state(state["targets"], n_targets, "screening / targets")
        check_array("screening / n_clipped", state["n_clipped"], (n_targets,))
        check_whole("screening / n_clipped", state["n_clipped"], 0, 1 << 53)
        self.n_clipped = state["n_clipped"].copy()
        # Earlier versions looked for no limits.
        if "shown" in state:
            self.shown = ShownLimits.from_state(state["shown"], n_targets)
        self.angles = np.full(n_targets, np.nan)
        if "angles" in state:
            check_array("screening / angles", state["angles"], (n_targets,))
            self.angles = state["angles"].copy()
