"""Parameters of the row model, checked before any row comes."""

from __future__ import annotations

from dataclasses import dataclass, field

from momostream._checks import Constraint, at_least, check_settings, names, one_of, optional, positive, whole
from momostream.gp.covariance import KERNELS, Covariance
from momostream.stream.growth import Growth
from momostream.stream.lags import Autoregression
from momostream.stream.stack import ETA

__all__ = ["STREAM_CONSTRAINTS", "StreamSettings"]

STREAM_CONSTRAINTS: dict[str, Constraint] = {
    "experts": names("clock matern32", "matern32", "lags"),
    "max_points": whole(8),
    "n_components": whole(1),
    "n_groups": whole(1),
    "mixture_depth": optional(whole(0)),
    "split_by": one_of("relevance", "variance"),
    "group_by": one_of("random", "independence"),
    "coupling": one_of("shared", "independent"),
    "weights": one_of("stacking", "posterior", "uniform"),
    "eta": positive(1.0),
    "discount": positive(1.0),
    "forgetting": positive(1.0),
    "tuning_points": whole(4),
    "tuning_evaluations": whole(0),
    "tuning_interval": whole(1),
    "first_tuning": at_least(4.0),
    "tuning_growth": at_least(1.01),
    "child_width": at_least(1e-3),
    "window": optional(whole(1)),
    "memory_budget": optional(whole(0)),
    "seed": optional(whole(0)),
}

# Leaves that do not see the time keep, and are tuned on, this many times the rows: all rows matter, not only the
# newest.
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
        """Check every parameter before any row comes."""
        check_settings(self, STREAM_CONSTRAINTS)
        object.__setattr__(self, "circuits", self._read_experts())

    def _read_experts(self) -> tuple[tuple[int, Covariance], ...]:
        """First column and covariance of each circuit."""
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
    def expert_names(self) -> tuple[str, ...]:
        """Names of the experts in the order of the stack."""
        circuits = tuple(name for name in self.experts if name != "lags")
        return circuits + (Autoregression.EXPERTS if self.has_lags else ())

    def growth(self, start: int) -> Growth:
        """How a tree grows that sees the columns of the points from this one on."""
        depth = 10**9 if self.mixture_depth is None else self.mixture_depth
        more = WITHOUT_CLOCK if start else 1.0
        return Growth(
            int(more * self.max_points), self.n_components, self.n_groups, depth, self.split_by, self.group_by,
            self.coupling, self.weights, self.eta, self.discount, int(more * self.tuning_points),
            self.tuning_evaluations, self.first_tuning, self.tuning_growth, self.child_width,
        )  # fmt: skip
