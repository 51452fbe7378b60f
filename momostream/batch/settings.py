"""Parameters of the table model, checked before a fit."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from momostream.batch.experts import ExpertSpec, TuningRules
from momostream.batch.nodes import Circuit
from momostream.batch.structure import SplitRules

__all__ = ["Settings"]

# With max_points=None, a data set of at most this many rows is one region: exact, and still a matter of seconds.
EXACT_ROWS = 8192
# Larger ones are cut into regions of at most this many rows.
LOCAL_ROWS = 1024

CHOICES = {
    "coupling": ("shared", "independent"),
    "hyperparameters": ("own", "tied"),
    "outputs": ("joint", "separate"),
    "split_by": ("relevance", "variance"),
    "group_by": ("random", "independence"),
    "weights": ("stacking", "posterior", "uniform"),
    "stacking": ("loo", "blocks"),
    "start": ("prior", "random"),
}


@dataclass(frozen=True)
class Settings:
    """Parameters of the model; the facades document them."""

    experts: tuple[str, ...] = ("matern32", "warped matern12", "linear")
    max_points: int | None = None
    n_components: int = 2
    n_cells: int = 2
    n_groups: int = 1
    mixture_depth: int | None = 1
    split_by: str = "relevance"
    group_by: str = "random"
    outputs: str = "joint"
    coupling: str = "shared"
    hyperparameters: str = "own"
    weights: str = "stacking"
    stacking: str = "loo"
    n_blocks: int = 15
    discount: float = 1.0
    tuning_points: int = 1000
    max_iterations: int = 40
    start: str = "prior"
    restarts: int = 0
    memory_budget: int | None = 2_000_000_000
    structure: Circuit | None = None
    n_jobs: int | None = None
    verbose: int = 0
    seed: int | None = None
    specs: tuple[ExpertSpec, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Check every parameter, so that a mistake is named before any work is done."""
        for name, accepted in CHOICES.items():
            if getattr(self, name) not in accepted:
                raise ValueError(
                    f"{name}={getattr(self, name)!r} is not accepted: use one of {', '.join(map(repr, accepted))}"
                )
        least = {"n_components": 1, "n_cells": 1, "n_groups": 1, "n_blocks": 2, "tuning_points": 2, "max_iterations": 0}
        least |= {"restarts": 0, "max_points": 2, "mixture_depth": 0, "memory_budget": 0}
        for name, bound in least.items():
            value = getattr(self, name)
            if value is None and name in ("max_points", "mixture_depth", "memory_budget"):
                continue
            if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < bound:
                raise ValueError(f"{name}={value!r} is not accepted: use a whole number of at least {bound}")
        real = isinstance(self.discount, float | int | np.floating | np.integer) and not isinstance(self.discount, bool)
        if not (real and 0.0 < self.discount <= 1.0):
            raise ValueError(f"discount={self.discount!r} is not accepted: use a number above 0 and at most 1")
        if self.structure is not None and not isinstance(self.structure, Circuit):
            raise TypeError(f"structure must be a momostream.Circuit, not {type(self.structure).__name__}")
        if self.verbose not in (0, 1, 2):
            raise ValueError(f"verbose={self.verbose!r} is not accepted: use 0, 1 or 2")
        named = isinstance(self.experts, tuple) and all(isinstance(name, str) for name in self.experts)
        if not named or not self.experts:
            raise ValueError(
                f"experts={self.experts!r} is not accepted: use a tuple of names such as ('matern32', 'linear')"
            )
        if len(set(self.experts)) < len(self.experts):
            raise ValueError(f"experts={self.experts!r} names an expert twice")
        try:
            specs = tuple(ExpertSpec.parse(name) for name in self.experts)
        except ValueError as error:
            raise ValueError(f"experts={self.experts!r} is not accepted: {error}") from error
        object.__setattr__(self, "specs", specs)
        comparable = all(spec.covariance is not None and not spec.residual for spec in self.specs)
        if self.weights == "posterior" and not comparable:
            raise ValueError(
                "weights='posterior' needs the evidence of the targets: use kernels only, no 'linear' or 'residual'"
            )
        if self.weights == "posterior" and self.discount < 1.0:
            raise ValueError("weights='posterior' needs discount=1: a discounted likelihood is no evidence")

    def plan(self, n_rows: int) -> SplitRules:
        """What Algorithm 1 is told for this many rows."""
        max_points = self.max_points
        if max_points is None:
            max_points = EXACT_ROWS if n_rows <= EXACT_ROWS else LOCAL_ROWS
        return SplitRules(
            max_points,
            self.n_components,
            self.n_cells,
            self.n_groups,
            self.mixture_depth,
            self.group_by,
            single_outputs=self.coupling == "independent",
        )

    def rules(self) -> TuningRules:
        """How hyper-parameters are found."""
        return TuningRules(
            self.tuning_points,
            self.max_iterations,
            self.restarts,
            random_start=self.start == "random",
            tied=self.hyperparameters == "tied",
        )
