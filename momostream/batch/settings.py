"""Parameters of the table model, checked before a fit."""

from __future__ import annotations

from dataclasses import dataclass, field

from momostream._checks import Constraint, check_settings, instance_of, names, one_of, optional, positive, whole
from momostream.batch.experts import ExpertSpec, TuningRules
from momostream.batch.nodes import Circuit
from momostream.batch.structure import SplitRules

__all__ = ["Settings"]

# With max_points=None, a data set of at most this many rows is one region: exact, and still a matter of seconds.
EXACT_ROWS = 8192
# Larger ones are cut into regions of at most this many rows.
LOCAL_ROWS = 1024

CONSTRAINTS: dict[str, Constraint] = {
    "experts": names("matern32", "linear"),
    "max_points": optional(whole(2)),
    "n_components": whole(1),
    "n_cells": whole(1),
    "n_groups": whole(1),
    "mixture_depth": optional(whole(0)),
    "split_by": one_of("relevance", "variance"),
    "group_by": one_of("random", "independence"),
    "outputs": one_of("joint", "separate"),
    "coupling": one_of("shared", "independent"),
    "hyperparameters": one_of("own", "tied"),
    "weights": one_of("stacking", "posterior", "uniform"),
    "stacking": one_of("loo", "blocks"),
    "n_blocks": whole(2),
    "discount": positive(1.0),
    "tuning_points": whole(2),
    "max_iterations": whole(0),
    "start": one_of("prior", "random"),
    "restarts": whole(0),
    "memory_budget": optional(whole(0)),
    "structure": optional(instance_of(Circuit, "a momostream.Circuit")),
    "verbose": one_of(0, 1, 2),
}


@dataclass(frozen=True)
class Settings:
    """Parameters of the model; `momostream.sklearn.MOMoGPRegressor` documents them."""

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
        """Check every parameter before any work is done."""
        check_settings(self, CONSTRAINTS)
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
            raise ValueError("weights='posterior' needs discount=1: a discounted likelihood is not an evidence")

    def plan(self, n_rows: int) -> SplitRules:
        """Rules of Algorithm 1 for this many rows."""
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
        """Settings of the search for hyper-parameters."""
        return TuningRules(
            self.tuning_points,
            self.max_iterations,
            self.restarts,
            random_start=self.start == "random",
            tied=self.hyperparameters == "tied",
        )
