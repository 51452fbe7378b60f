"""How a circuit grows."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Growth"]


@dataclass(frozen=True)
class Growth:
    """How a tree grows; `momostream.MOMoGPRegressor` documents the parameters."""

    max_points: int
    n_components: int
    n_groups: int
    mixture_depth: int
    split_by: str
    group_by: str
    coupling: str
    weights: str
    eta: float
    discount: float
    tuning_points: int
    tuning_evaluations: int
    first_tuning: int
    tuning_growth: float
    child_width: float
