"""Parameters of the model of many steps, checked before any row comes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from momostream._checks import Constraint, check_settings, flag, names, optional, whole
from momostream.gp.covariance import KERNELS, Covariance
from momostream.stream.settings import STREAM_CONSTRAINTS, StreamSettings

__all__ = ["CURVED", "LINEAR", "LONGEST_SEASON", "RESIDUAL", "SEASON", "SEASONS", "HorizonSettings"]

LINEAR = ("last value", "season", "own lags", "wide lags", "iterated lags")
CURVED, RESIDUAL = "curved lags", "residual "

# Rows of the past are kept for a whole season, so that its length must have a limit. A regression on more lags would
# be left out.
LONGEST_SEASON, MOST_LAGS = 1 << 20, 10_000
SEASON = whole(2, LONGEST_SEASON)
SEASONS = Constraint(
    lambda seasons: isinstance(seasons, tuple) and all(map(SEASON.accepts, seasons)),
    f"a tuple of whole numbers from 2 to {LONGEST_SEASON}",
)
CONSTRAINTS: dict[str, Constraint] = {
    "horizon": whole(1),
    "experts": names(*LINEAR, CURVED, "matern32"),
    "lags": optional(whole(1, MOST_LAGS)),
    "seasons": optional(SEASONS),
    "conformal": flag(),
    # These are handed to the circuits.
    **{name: STREAM_CONSTRAINTS[name] for name in ("max_points", "window", "memory_budget", "seed")},
}


@dataclass(frozen=True)
class HorizonSettings:
    """Parameters of the model; `momostream.MOMoGPForecaster` documents them."""

    horizon: int = 24
    experts: tuple[str, ...] = (*LINEAR, CURVED, "matern32", "residual matern32")
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
        for name in self.experts:
            if name not in (*LINEAR, CURVED):
                _check_circuit(name)
        if CURVED in self.experts and "own lags" not in self.experts:
            raise ValueError(f"experts={self.experts!r} is not accepted: 'curved lags' require 'own lags'")
        if any(name.startswith(RESIDUAL) for name in self.experts) and "wide lags" not in self.experts:
            raise ValueError(f"experts={self.experts!r} is not accepted: 'residual' experts require 'wide lags'")

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
        return self._circuits(
            [name for name in self.experts if name not in (*LINEAR, CURVED) and not name.startswith(RESIDUAL)]
        )

    @cached_property
    def residual(self) -> StreamSettings | None:
        """Circuits on the residuals of the wide regression."""
        return self._circuits([name.removeprefix(RESIDUAL) for name in self.experts if name.startswith(RESIDUAL)])


def _check_circuit(name: str) -> None:
    kernel = name.removeprefix(RESIDUAL)
    if kernel == "lags":
        raise ValueError(f"unknown expert {name!r}: it belongs to MOMoGPRegressor, use 'own lags' or 'wide lags'")
    try:
        Covariance.parse(kernel.removeprefix("clock "))
    except ValueError:
        raise ValueError(
            f"unknown expert {name!r}: use {', '.join(map(repr, (*LINEAR, CURVED)))}, a kernel ({', '.join(KERNELS)}, "
            f"optionally followed by '+linear', or after 'clock '), or {RESIDUAL!r} and a kernel"
        ) from None
