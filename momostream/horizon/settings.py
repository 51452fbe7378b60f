"""Parameters of the model of many steps, checked before any row comes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from momostream.stream.settings import StreamSettings

__all__ = ["RESIDUAL", "HorizonSettings"]

LINEAR = ("last value", "season", "own lags", "wide lags")
RESIDUAL = "residual "


@dataclass(frozen=True)
class HorizonSettings:
    """Parameters of the model; `momostream.MOMoGPForecaster` documents them."""

    horizon: int = 24
    experts: tuple[str, ...] = (*LINEAR, "matern32", "residual matern32")
    lags: int | None = None
    seasons: tuple[int, ...] | None = None
    conformal: bool = False
    max_points: int = 192
    window: int | None = None
    memory_budget: int | None = None
    seed: int | None = None

    def __post_init__(self) -> None:
        """Check every parameter."""
        for name in ("horizon", "lags"):
            value = getattr(self, name)
            if value is None and name == "lags":
                continue
            if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
                raise ValueError(f"{name}={value!r} is not accepted: use a whole number of at least 1")
        seasons = self.seasons
        if seasons is not None and (
            not isinstance(seasons, tuple)
            or any(isinstance(s, bool) or not isinstance(s, int | np.integer) or s < 2 for s in seasons)
        ):
            raise ValueError(
                f"seasons={seasons!r} is not accepted: use a tuple of whole numbers of at least 2, or None"
            )
        known = isinstance(self.experts, tuple) and all(isinstance(name, str) for name in self.experts)
        if not known or not self.experts or len(set(self.experts)) < len(self.experts):
            raise ValueError(f"experts={self.experts!r} is not accepted: use a tuple of different names")
        names = [name.removeprefix(RESIDUAL) for name in self.experts]
        if "lags" in names:
            raise ValueError("the expert 'lags' is one of the regressor: use 'own lags' or 'wide lags'")
        if any(name.startswith(RESIDUAL) for name in self.experts) and "wide lags" not in self.experts:
            raise ValueError(f"experts={self.experts!r}: residuals are those of 'wide lags', which take no part")
        # Checks the names of the circuits and the rest.
        for part in ("plain", "residual"):
            _ = getattr(self, part)

    def _circuits(self, kernels: list[str]) -> StreamSettings | None:
        if not kernels:
            return None
        return StreamSettings(
            experts=tuple(kernels), weights="uniform", max_points=self.max_points, window=self.window,
            memory_budget=self.memory_budget, seed=self.seed,
        )  # fmt: skip

    @cached_property
    def plain(self) -> StreamSettings | None:
        """Circuits on changes."""
        return self._circuits([name for name in self.experts if name not in LINEAR and not name.startswith(RESIDUAL)])

    @cached_property
    def residual(self) -> StreamSettings | None:
        """Circuits on what the wide regression leaves."""
        return self._circuits([name.removeprefix(RESIDUAL) for name in self.experts if name.startswith(RESIDUAL)])
