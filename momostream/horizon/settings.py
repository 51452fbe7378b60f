"""Parameters of the model of many steps, checked before any row comes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from momostream._checks import Constraint, check_settings, flag, names, optional, whole
from momostream.stream.settings import STREAM_CONSTRAINTS, StreamSettings

__all__ = ["RESIDUAL", "HorizonSettings"]

LINEAR = ("last value", "season", "own lags", "wide lags")
RESIDUAL = "residual "

_SEASON = whole(2)
CONSTRAINTS: dict[str, Constraint] = {
    "horizon": whole(1),
    "experts": names(*LINEAR, "matern32"),
    "lags": optional(whole(1)),
    "seasons": optional(
        Constraint(
            lambda seasons: isinstance(seasons, tuple) and all(map(_SEASON.accepts, seasons)),
            "a tuple of whole numbers of at least 2",
        )
    ),
    "conformal": flag(),
    # These are handed to the circuits.
    **{name: STREAM_CONSTRAINTS[name] for name in ("max_points", "window", "memory_budget", "seed")},
}


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
        """Check every parameter before any row comes."""
        check_settings(self, CONSTRAINTS)
        if "lags" in [name.removeprefix(RESIDUAL) for name in self.experts]:
            raise ValueError(
                f"experts={self.experts!r} is not accepted: 'lags' is an expert of MOMoGPRegressor, "
                "use 'own lags' or 'wide lags'"
            )
        if any(name.startswith(RESIDUAL) for name in self.experts) and "wide lags" not in self.experts:
            raise ValueError(f"experts={self.experts!r} is not accepted: 'residual' experts require 'wide lags'")
        # Built here so that unknown kernels are rejected at once.
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
        """Circuits on the residuals of the wide regression."""
        return self._circuits([name.removeprefix(RESIDUAL) for name in self.experts if name.startswith(RESIDUAL)])
