"""The part of `Fleet` that takes frames in long format: each series is a key with a model of its own."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from momostream.estimators._frames import as_frame
from momostream.estimators._long import LONG, LongNames, long_names
from momostream.storage.store import Key, plain_key

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["FleetFrames"]


class FleetFrames:
    """Rows of many keys at once, for models that forecast series."""

    _names: LongNames = LONG

    def keys(self) -> list[Key]:
        """All keys."""
        raise NotImplementedError

    def add(self, key: Any, model: Any) -> None:
        """Add an existing model under a new key."""
        raise NotImplementedError

    def _find(self, key: Key) -> Any:
        raise NotImplementedError

    def _fresh(self, key: Key) -> Any:
        raise NotImplementedError

    def learn_many(
        self, frame: Any, inputs: Sequence[Hashable] = (), long: bool | Sequence[Hashable] | None = None
    ) -> None:
        """Learn the rows of a frame in long format, key by key; a key that is new gets its model.

        Parameters
        ----------
        frame
            One line for each key and time, of pandas or polars.
        inputs
            Further columns that are inputs.
        long
            Names of the columns with key, time and value; None: ``unique_id``, ``ds`` and ``y``.

        Raises
        ------
        ValueError, TypeError
            With the key, if one of its rows cannot be learnt. That key and those after it have then learnt none.

        Examples
        --------
        >>> import pandas as pd
        >>> from momostream import MOMoGPForecaster
        >>> from momostream.fleet import Fleet
        >>> days = pd.date_range("2024-01-01", periods=30)
        >>> frame = pd.concat(pd.DataFrame({"unique_id": key, "ds": days, "y": range(30)}) for key in ("a", "b"))
        >>> fleet = Fleet(MOMoGPForecaster(horizon=2, experts=("last value", "own lags")))
        >>> fleet.learn_many(frame)
        >>> fleet.predict(levels=())[["unique_id", "ds", "mean"]].round({"mean": 1})
          unique_id         ds  mean
        0         a 2024-01-31  30.0
        1         a 2024-02-01  31.0
        2         b 2024-01-31  30.0
        3         b 2024-02-01  31.0
        """
        table = as_frame(frame, "frame", "x")
        self._names = names = long_names(table, True if long is None else long) or LONG
        for key, rows in _by_key(table, names, inputs):
            found = self._find(key)
            model = self._fresh(key) if found is None else found
            try:
                model.learn_many(rows, list(inputs), long=False)
            except (TypeError, ValueError) as error:
                raise type(error)(f"{names.id} {key!r}: {error}") from None
            if found is None:
                self.add(key, model)

    def predict(
        self,
        horizon: int | str | None = None,
        levels: Sequence[float] = (0.5, 0.9),
        xs: Mapping[Any, Any] | None = None,
    ) -> pd.DataFrame:
        """Forecast every key, as a frame in long format: mean, standard deviation, and quantiles of intervals.

        Parameters
        ----------
        horizon
            Rows or a span; None: as far ahead as the models were made for.
        levels
            Probabilities of the intervals.
        xs
            Inputs of the rows to come, by key.
        """
        import pandas as pd

        names, parts = self._names, []
        for key in self.keys():
            forecast = self._find(key).forecast(horizon, None if xs is None else xs.get(key), with_dist=True)
            lines = forecast.to_frame(levels)
            lines.columns = [names.time, *lines.columns[1:]]
            if len(forecast.series) == 1:
                lines = lines.drop(columns="series")
            lines.insert(0, names.id, key)
            parts.append(lines)
        return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=[names.id, names.time])


def _by_key(table: pd.DataFrame, names: LongNames, inputs: Sequence[Hashable]) -> Iterator[tuple[Key, pd.DataFrame]]:
    """The rows of each key, with their times as index."""
    for name in inputs:
        if name not in table.columns:
            raise ValueError(f"there is no input {name!r}; the columns are {', '.join(map(repr, table.columns))}")
    missing = table[names.id].isna()
    if missing.any():
        raise ValueError(f"row {table.index[missing.to_numpy()][0]!r} has no {names.id!r}")
    columns = [names.value, *inputs]
    for key in table[names.id].unique().tolist():
        yield plain_key(key), table[table[names.id] == key].set_index(names.time)[columns]
