"""Inputs that act along curves: their squares, and their products with the waves of the day."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["BentInputs"]

Array = NDArray[np.float64]

# Waves that inputs are multiplied with, and columns that may be made of inputs; more inputs have squares only, or none.
N_WAVES, MOST_BENDS = 2, 24


class BentInputs:
    """Columns made of inputs that are known in advance, so that regressions that are linear in them bend.

    The load of a grid rises with heat and with cold, and rain keeps cyclists at home at noon, not at night. Inputs are
    measured from their first value: how large they are does not matter.

    Parameters
    ----------
    n_inputs, n_terms
        Columns: inputs, and those of the calendar, which begin with the waves of the day.

    Attributes
    ----------
    n_bends
        Columns that are made: squares, and products with each wave.
    centre
        The first value of each input; NaN before it.

    Examples
    --------
    >>> inputs = BentInputs(n_inputs=1, n_terms=4)
    >>> inputs.see(np.array([10.0]))
    >>> inputs.bend(np.array([12.0]), np.array([0.5, 1.0, 0.0, 0.0]))
    array([4., 1., 2.])
    """

    def __init__(self, n_inputs: int, n_terms: int) -> None:
        n_waves = min(N_WAVES, n_terms)
        self.n_inputs, self.n_waves = n_inputs, n_waves if n_inputs * (1 + n_waves) <= MOST_BENDS else 0
        self.n_bends = n_inputs * (1 + self.n_waves) if n_inputs <= MOST_BENDS else 0
        self.centre = np.full(n_inputs, np.nan)

    @property
    def n_columns(self) -> int:
        """Inputs and the columns made of them."""
        return self.n_inputs + self.n_bends

    def see(self, x: Array) -> None:
        """Take the first value of each input."""
        if self.n_bends:
            self.centre = np.where(np.isnan(self.centre), x, self.centre)

    def bend(self, X: Array, terms: Array) -> Array:
        """The columns made of inputs ``(..., n_inputs)`` and calendar ``(..., n_terms)``; NaN where inputs are."""
        if not self.n_bends:
            return np.empty((*X.shape[:-1], 0))
        away = X - self.centre
        waves = [away * terms[..., k : k + 1] for k in range(self.n_waves)]
        return np.concatenate([away * away, *waves], axis=-1)

    def slopes(self, x: Array, terms: Array) -> Array:
        """How inputs and the columns made of them move with each input, ``(n_columns, n_inputs)``."""
        every = np.eye(self.n_inputs)
        if not self.n_bends:
            return every
        squares = np.diag(np.nan_to_num(2.0 * (x - self.centre)))
        return np.concatenate([every, squares, *(terms[k] * every for k in range(self.n_waves))])
