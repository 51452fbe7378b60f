"""`MonitorModel`: evidence row by row, means of it, and the rows from which normal behaviour is learnt."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from momostream.monitor.normal import (
    CLIP,
    GAINS,
    LAGS,
    OUTLIER,
    SPEEDS,
    Normal,
    NormalRows,
    as_normal,
    conditional_errors,
    raw_score,
)
from momostream.monitor.restoring import check_monitor

__all__ = ["MOST_ROWS", "Evidence", "MonitorModel"]

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]

# Normal behaviour is learnt again when this share of its rows is new.
REFIT_SHARE = 8
# A lag departs from its expectation by this many deviations of the error at most: the row after a spike is not strange.
LAG_CLIP = 4.0
# An event counts in rates as if it were this many times as rare as the threshold, in decades, at most.
MOST_RARE = 2.0
# Columns that explain an event at most, and deviations from which one takes part; the strongest always does.
MOST_COLUMNS, LEAST_DEVIATION = 8, 3.0
# Errors are averaged over this many rows of an event at most.
MOST_ROWS = 30
# Beyond the values that columns have shown, the slopes between them are known to this share of themselves only.
DOUBT = 1.0
# Rows for which there is room at first.
FIRST_ROOM = 128


class Evidence(NamedTuple):
    """A row beside what was expected.

    ``score`` is minus the decimal logarithm of the share of normal rows that are stranger, ``raw`` the same before it
    was compared with normal rows, ``means`` the evidence ``(S, E)`` after the row, ``filled`` its values as later rows
    see them, ``expected`` those given the past.
    """

    score: float
    raw: float
    means: Array
    filled: Array
    expected: Array


class MonitorModel:
    """Watches rows of P columns, NaN where a value is missing, and learns those that it is told to.

    Parameters
    ----------
    n_columns
        Number of columns.
    warm_up
        Rows to learn before any is judged.
    window
        Rows from which normal behaviour is learnt, the newest ones.
    """

    def __init__(self, n_columns: int, warm_up: int, window: int) -> None:
        self.n_columns, self.warm_up, self.window = n_columns, warm_up, window
        self.n_learnt = 0
        self.normal: Normal | None = None
        self._next_fit = warm_up
        # Of events that began lately: rows learnt until then, and the raw score.
        self._alarms: list[tuple[int, float]] = []
        self._allocate(min(FIRST_ROOM, window))
        self.reset()

    def _allocate(self, room: int) -> None:
        P = self.n_columns
        self._rows = NormalRows(np.zeros((room, LAGS, P)), np.zeros((room, P)), np.zeros((room, P), dtype=bool))

    def reset(self) -> None:
        """Forget the newest rows and what has accumulated, as after a gap; normal behaviour stays."""
        self._past = np.full((LAGS, self.n_columns), np.nan)
        self._means = np.zeros((len(SPEEDS), 2 * self.n_columns + 1))
        self._n_past = 0

    def calm(self) -> None:
        """Forget what has accumulated."""
        self._means = np.zeros_like(self._means)

    # ------------------------------------------------------------------ rows

    def evidence(self, y: Array) -> Evidence:
        """Judge a row; changes nothing."""
        normal = self.normal
        if normal is None or self._n_past < LAGS:
            filled = np.where(np.isnan(y), self._past[0], y)
            return Evidence(0.0, 0.0, self._means, filled, np.full(self.n_columns, np.nan))
        known = ~np.isnan(y) & normal.ready
        predicted = self._predict(normal, self._past)
        u = (y - normal.centre) / normal.scale
        u -= predicted
        u /= normal.std
        complete = bool(known.all())
        if not complete:
            u[~known] = 0.0
            conditional_errors(u, known, normal.precision)
        expected = normal.centre + normal.scale * predicted
        seen = predicted + np.clip(u, -LAG_CLIP, LAG_CLIP) * normal.std
        if not complete:
            seen[~known] = np.clip(seen[~known], -OUTLIER, OUTLIER)
        filled = normal.centre + normal.scale * seen
        if not known.any():
            return Evidence(0.0, 0.0, self._means, filled, expected)
        means = self._accumulate(normal, u, known, complete, y)
        raw = float(raw_score(means * GAINS / normal.norms, normal.dof[:, np.newaxis]))
        return Evidence(normal.score(raw), raw, means, filled, expected)

    @staticmethod
    def _predict(normal: Normal, past: Array) -> Array:
        lags = (past - normal.centre) / normal.scale
        found: Array = normal.weights[0] + np.nan_to_num(lags).ravel() @ normal.weights[1:]
        return found

    def _accumulate(self, normal: Normal, u: Array, known: Flags, complete: bool, y: Array) -> Array:
        v = u @ normal.precision
        P = self.n_columns
        evidence = np.empty(2 * P + 1)
        evidence[:P] = u
        evidence[P:-1] = v / self._given_scale(normal, y)
        size = max(float(v @ u) / max(known.sum(), 1), 1e-12)
        evidence[-1] = (np.log(size) - normal.size_centre) / normal.size_std
        before = self._means
        means = before + SPEEDS[:, np.newaxis] * (np.clip(evidence, -CLIP, CLIP) - before)
        # A row alone counts in full.
        means[0] = evidence
        if not complete:
            unknown = np.concatenate([~known, ~known, [False]])
            means[:, unknown] = before[:, unknown]
            means[0, unknown] = 0.0
        return means

    @staticmethod
    def _given_scale(normal: Normal, y: Array) -> Array:
        """Standard deviation of ``precision @ errors`` of a row, larger where other columns are beyond their reach.

        New weather moves all columns of a machine to where none of them has been, and their relation is not that of
        before; a fault moves the column that is at fault, and is judged given others that are where they were.
        """
        scale: Array = np.sqrt(np.diagonal(normal.precision)) * normal.given_std
        if normal.reach is None:
            return scale
        low, high = normal.reach
        beyond = np.nan_to_num(np.maximum(low - y, y - high))
        if not (beyond > 0.0).any():
            return scale
        beyond = np.maximum(beyond, 0.0) / (normal.scale * normal.std)
        slopes = np.abs(normal.precision)
        doubt = DOUBT * (beyond @ slopes - beyond * np.diagonal(slopes))
        return np.hypot(scale, doubt)

    def watch(self, evidence: Evidence) -> None:
        """Move on by a row that `evidence` has judged."""
        self._means = evidence.means
        self._push(evidence.filled)

    def learn(self, y: Array, evidence: Evidence) -> None:
        """Take a row that `evidence` has judged as normal, and move on."""
        if self._n_past >= LAGS or self.normal is None:
            self.keep(self._past, np.where(np.isnan(y), evidence.filled, y), ~np.isnan(y))
        self.watch(evidence)

    def note_alarm(self, evidence: Evidence, threshold: float) -> None:
        """Count the first row of an event among the rates of scores, as at most twice as rare as the threshold."""
        assert self.normal is not None
        self._alarms.append((self.n_learnt, min(evidence.raw, self.normal.raw(MOST_RARE * threshold))))

    @property
    def past(self) -> Array:
        """The newest rows as later ones see them, the newest first, shape (L, P)."""
        return self._past

    def keep(self, lags: Array, values: Array, known: Flags, fit: bool = True) -> None:
        """Add a row to those from which normal behaviour is learnt, and learn it again if it is time."""
        if not known.any():
            return
        position = self.n_learnt % self.window
        if position >= len(self._rows.values):
            self._grow()
        for room, part in zip(self._rows, (lags, values, known), strict=True):
            room[position] = part
        self.n_learnt += 1
        if fit and self.n_learnt >= self._next_fit:
            self.fit()

    def _push(self, filled: Array) -> None:
        self._past = np.concatenate([filled[np.newaxis], self._past[:-1]])
        self._n_past = min(self._n_past + 1, LAGS)

    def _grow(self) -> None:
        old = self._rows
        self._allocate(min(2 * len(old.values), self.window))
        for new, before in zip(self._rows, old, strict=True):
            new[: len(before)] = before

    def fit(self) -> None:
        """Learn normal behaviour from the rows that are kept, the oldest first."""
        n = min(self.n_learnt, self.window)
        order = (np.arange(n) + self.n_learnt) % n if n == self.window else np.arange(n)
        lags, values, known = self._rows.lags[order], self._rows.values[order], self._rows.known[order]
        self._alarms = [(at, raw) for at, raw in self._alarms if at > self.n_learnt - n]
        alarms = np.array([raw for _, raw in self._alarms])
        self.normal = Normal.fit(NormalRows(lags, np.nan_to_num(values), known), alarms)
        self._next_fit = self.n_learnt + max(8, n // REFIT_SHARE)

    # ------------------------------------------------------------------ reasons

    def deviations(self, means: Array) -> Array:
        """The strongest evidence about each column, in standard deviations with its sign, shape (P,)."""
        normal, P = self.normal, self.n_columns
        assert normal is not None
        Z = as_normal(means * GAINS / normal.norms, normal.dof[:, np.newaxis])[:, :-1].reshape(-1, P)
        found: Array = Z[np.abs(Z).argmax(axis=0), np.arange(P)]
        return found

    def errors(self, y: Array, past: Array) -> Array:
        """Errors of a row after a past ``(L, P)``, in their standard deviations; those unknown given the others."""
        normal = self.normal
        assert normal is not None
        known = ~np.isnan(y) & normal.ready
        u = ((y - normal.centre) / normal.scale - self._predict(normal, past)) / normal.std
        if not known.all():
            u[~known] = 0.0
            conditional_errors(u, known, normal.precision)
        return u

    def isolate(self, u: Array, n_rows: int) -> Array:
        """How far the columns depart that explain errors, in standard deviations; 0 for the others; shape (P,).

        Columns that go together all look strange when one departs. So the strangest given the past and all others is
        taken first and counts as unknown from there on, then the strangest of the rest, as long as one remains.

        Parameters
        ----------
        u
            Mean errors of some rows, shape (P,).
        n_rows
            Number of these rows.
        """
        normal, P = self.normal, self.n_columns
        assert normal is not None
        u, found, left = u.copy(), np.zeros(P), normal.ready.copy()
        speed = int(np.abs(np.log(SPEEDS * n_rows)).argmin())
        dof, norms, gain = normal.dof[speed], normal.norms[speed], np.sqrt(min(n_rows, MOST_ROWS))
        alone = np.abs(as_normal(u * gain / norms[:P], dof))
        unit = np.sqrt(np.diagonal(normal.precision)) * normal.given_std * norms[P:-1]
        for _ in range(min(int(left.sum()), MOST_COLUMNS)):
            z = np.where(left, as_normal((normal.precision @ u) / unit * gain, dof), 0.0)
            # Given each other, two columns look alike; given the past, the one that is at fault is stranger.
            column = int((np.abs(z) + np.where(left, alone, 0.0)).argmax())
            if found.any() and abs(z[column]) < LEAST_DEVIATION:
                break
            found[column], left[column] = z[column], False
            conditional_errors(u, left, normal.precision)
        return found

    def expected(self, y: Array, past: Array, suspects: Flags) -> Array:
        """Values of a row after a past ``(L, P)``: of suspect and unknown columns those expected given the others."""
        normal = self.normal
        assert normal is not None
        known = ~np.isnan(y) & normal.ready & ~suspects
        u = self.errors(np.where(known, y, np.nan), past)
        # Expectations of expectations must not run away.
        values = np.clip(self._predict(normal, past) + normal.std * u, -OUTLIER, OUTLIER)
        expected = normal.centre + normal.scale * values
        found: Array = np.where(known, y, expected)
        return found

    # ------------------------------------------------------------------ columns, size, state

    def widen(self, n_new: int) -> None:
        """Add columns that had no value so far."""
        old, normal = self._rows, self.normal
        past, n_past = self._past, self._n_past
        self.n_columns += n_new
        self._allocate(len(old.values))
        for new, before in zip(self._rows, old, strict=True):
            new[..., : before.shape[-1]] = before
        self._rows.lags[..., -n_new:] = np.nan
        self.reset()
        self._past[:, :-n_new] = past
        self._n_past = n_past
        if normal is not None:
            self.fit()

    @property
    def nbytes(self) -> int:
        """Bytes of rows and statistics."""
        arrays = [*self._rows, self._past, self._means]
        if self.normal is not None:
            arrays += [value for value in self.normal.state().values() if isinstance(value, np.ndarray)]
        return sum(array.nbytes for array in arrays)

    def state(self) -> dict[str, Any]:
        """All that was learnt as plain data."""
        return {
            "n_columns": self.n_columns, "n_learnt": self.n_learnt, "next_fit": self._next_fit, "n_past": self._n_past,
            "alarms": [list(alarm) for alarm in self._alarms], "rows": list(self._rows), "past": self._past,
            "means": self._means,
            "normal": None if self.normal is None else self.normal.state(),
        }  # fmt: skip

    @classmethod
    def from_state(cls, state: Mapping[str, Any], n_columns: int, warm_up: int, window: int) -> Self:
        """Restore from `state`, that of so many columns."""
        check_monitor(state, n_columns, window)
        model = cls(n_columns, warm_up, window)
        model.n_learnt, model._next_fit, model._n_past = state["n_learnt"], state["next_fit"], state["n_past"]
        model._alarms = [(at, raw) for at, raw in state["alarms"]]
        model._rows = NormalRows(*(np.array(part) for part in state["rows"]))
        model._past, model._means = np.array(state["past"]), np.array(state["means"])
        model.normal = None if state["normal"] is None else Normal(**state["normal"])
        return model
