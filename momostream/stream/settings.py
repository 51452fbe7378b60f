"""Parameters of the row model, checked before any row comes."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from momostream.gp.covariance import KERNELS, Covariance
from momostream.stream.lags import Autoregression
from momostream.stream.stack import ETA
from momostream.stream.tree import Growth

__all__ = ["StreamSettings"]

CHOICES = {
    "split_by": ("relevance", "variance"),
    "group_by": ("random", "independence"),
    "coupling": ("shared", "independent"),
    "weights": ("stacking", "posterior", "uniform"),
}
LEAST = {
    "max_points": 8, "n_components": 1, "n_groups": 1, "mixture_depth": 0, "tuning_points": 4,
    "tuning_evaluations": 0, "tuning_interval": 1, "window": 1, "memory_budget": 0,
}  # fmt: skip
OPTIONAL = ("mixture_depth", "window", "memory_budget")

# Experts that do not see the time keep and are tuned on so many times more rows: all their rows matter, not the newest.
WITHOUT_CLOCK = 1.5


@dataclass(frozen=True)
class StreamSettings:
    """Parameters of the model; `momostream.MOMoGPRegressor` documents them."""

    experts: tuple[str, ...] = ("clock matern32", "matern32", "lags")
    max_points: int = 256
    n_components: int = 1
    n_groups: int = 1
    mixture_depth: int | None = 1
    split_by: str = "relevance"
    group_by: str = "random"
    coupling: str = "shared"
    weights: str = "stacking"
    eta: float = ETA
    discount: float = 0.97
    forgetting: float = 0.998
    tuning_points: int = 128
    tuning_evaluations: int = 20
    tuning_interval: int = 32
    first_tuning: int = 16
    tuning_growth: float = 1.9
    child_width: float = 0.5
    window: int | None = None
    memory_budget: int | None = None
    seed: int | None = None
    circuits: tuple[tuple[int, Covariance], ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Check every parameter, so that a mistake is named before any row is lost to it."""
        for name, accepted in CHOICES.items():
            if getattr(self, name) not in accepted:
                allowed = ", ".join(map(repr, accepted))
                raise ValueError(f"{name}={getattr(self, name)!r} is not accepted: use one of {allowed}")
        for name, bound in LEAST.items():
            value = getattr(self, name)
            if value is None and name in OPTIONAL:
                continue
            if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < bound:
                raise ValueError(f"{name}={value!r} is not accepted: use a whole number of at least {bound}")
        if self.seed is not None and (
            isinstance(self.seed, bool) or not isinstance(self.seed, int | np.integer) or self.seed < 0
        ):
            raise ValueError(f"seed={self.seed!r} is not accepted: use a whole number of at least 0, or None")
        for name in ("discount", "forgetting", "eta"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, float | int) or not 0.0 < value <= 1.0:
                raise ValueError(f"{name}={value!r} is not accepted: use a number above 0 and at most 1")
        for name, least in {"first_tuning": 4.0, "tuning_growth": 1.01, "child_width": 1e-3}.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, float | int) or not least <= value < math.inf:
                raise ValueError(f"{name}={value!r} is not accepted: use a number of at least {least}")
        object.__setattr__(self, "circuits", self._read_experts())

    def _read_experts(self) -> tuple[tuple[int, Covariance], ...]:
        """First column and covariance of each circuit."""
        known = isinstance(self.experts, tuple) and all(isinstance(name, str) for name in self.experts)
        if not known or not self.experts or len(set(self.experts)) < len(self.experts):
            raise ValueError(f"experts={self.experts!r} is not accepted: use a tuple of different names")
        circuits = []
        for name in self.experts:
            if name == "lags":
                continue
            kernel = name.removeprefix("clock ")
            try:
                circuits.append((0 if name.startswith("clock ") else 1, Covariance.parse(kernel)))
            except ValueError:
                kernels = ", ".join(KERNELS)
                raise ValueError(
                    f"unknown expert {name!r}: use 'lags', a kernel ({kernels}, optionally followed by '+linear'), "
                    "or 'clock ' and a kernel"
                ) from None
        return tuple(circuits)

    @property
    def has_lags(self) -> bool:
        """Whether the linear experts on lags and the last value take part."""
        return "lags" in self.experts

    @property
    def members(self) -> tuple[str, ...]:
        """Names of the experts as the stack counts them."""
        names: list[str] = [name for name in self.experts if name != "lags"]
        return tuple(names) + (Autoregression.EXPERTS if self.has_lags else ())

    def growth(self, start: int) -> Growth:
        """What a tree that sees the points from this column on needs to know."""
        depth = 10**9 if self.mixture_depth is None else self.mixture_depth
        more = WITHOUT_CLOCK if start else 1.0
        return Growth(
            int(more * self.max_points), self.n_components, self.n_groups, depth, self.split_by, self.group_by,
            self.coupling, self.weights, self.eta, self.discount, int(more * self.tuning_points),
            self.tuning_evaluations, self.first_tuning, self.tuning_growth, self.child_width,
        )  # fmt: skip
