"""Shares over the rows of a machine, the weights of its experts or the relevance of its inputs, in bounded memory."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Shares"]

# Moments that are kept: with one more, every second one goes.
N_KEPT = 120


class Shares:
    """Shares of some names over time; when there are many moments, every second one goes.

    Examples
    --------
    >>> shares = Shares()
    >>> shares.note(10.0, {"wind": 1.0})
    >>> shares.note(20.0, {"wind": 0.75, "clock": 0.25})
    >>> shares.plain()
    {'names': ['wind', 'clock'], 'time': [10.0, 20.0], 'values': [[1.0, 0.75], [0.0, 0.25]]}
    """

    def __init__(self) -> None:
        self.names: list[str] = []
        self._times = np.empty(0)
        self._values: NDArray[np.float32] = np.empty((0, 0), np.float32)

    def __len__(self) -> int:
        """Return the number of moments."""
        return len(self._times)

    def note(self, at: float, shares: Mapping[str, float]) -> None:
        """Add the shares at a time; a name that is new had none before."""
        if not shares:
            return
        if new := [name for name in shares if name not in self.names]:
            self.names += new
            self._values = np.pad(self._values, ((0, 0), (0, len(new))))
        row = np.array([[shares.get(name, 0.0) for name in self.names]], np.float32)
        self._values = np.concatenate([self._values, row])
        self._times = np.append(self._times, at)
        if len(self._times) > N_KEPT:
            self._times, self._values = self._times[::2].copy(), self._values[::2].copy()

    def plain(self) -> dict[str, Any]:
        """Names, times, and the shares of each name, as plain data."""
        values = np.round(self._values.T.astype(np.float64), 4).tolist()
        return {"names": list(self.names), "time": self._times.tolist(), "values": values}

    # ------------------------------------------------------------------ in a file

    def packed(self) -> dict[str, Any]:
        """As text: every commit writes those of all machines, and numbers one by one would take the time of rows."""
        return {"names": list(self.names), "times": _packed(self._times), "values": _packed(self._values)}

    @classmethod
    def unpacked(cls, packed: Mapping[str, Any]) -> Shares:
        """Shares from what `packed` gave."""
        shares = cls()
        shares.names = list(packed["names"])
        shares._times = np.frombuffer(b64decode(packed["times"]))
        values = np.frombuffer(b64decode(packed["values"]), np.float32)
        shares._values = values.reshape(len(shares._times), len(shares.names))
        return shares


def _packed(numbers: NDArray[Any]) -> str:
    return b64encode(numbers.tobytes()).decode()
