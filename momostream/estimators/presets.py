"""Models of the family by name, as keyword arguments of the estimators."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

__all__ = ["PRESETS", "STREAM_PRESETS"]

_PAPER: dict[str, Any] = {
    "experts": ("matern32",),
    "coupling": "independent",
    "weights": "posterior",
    "split_by": "variance",
    "mixture_depth": None,
}

PRESETS: MappingProxyType[str, dict[str, Any]] = MappingProxyType(
    {
        # One exact GP per target on all rows.
        "exact": {**_PAPER, "n_components": 1, "n_cells": 1, "n_groups": 1},
        # A shallow mixture of exact GPs: sums and splits of the targets, no gates.
        "sumgp": {**_PAPER, "n_components": 2, "n_cells": 1, "n_groups": 2, "mixture_depth": 1, "start": "random"},
        # One deep mixture per target: sums and gates, targets independent throughout.
        "dsmgp": {**_PAPER, "n_components": 2, "n_cells": 2, "n_groups": 1, "outputs": "separate", "max_points": 500},
        # The paper's model: sums, gates and random splits of the targets.
        "momogp": {**_PAPER, "n_components": 2, "n_cells": 2, "n_groups": 2, "max_points": 500},
    }
)
"""Presets by name: ``"exact"``, ``"sumgp"``, ``"dsmgp"`` and ``"momogp"``, as in the paper's tables.

Use them as ``MOMoGPRegressor(**PRESETS["momogp"])`` or ``MOMoGPRegressor.from_preset("momogp", max_points=1000)``.
"""

STREAM_PRESETS: MappingProxyType[str, dict[str, Any]] = MappingProxyType(
    {
        # The paper's model on a stream: one leaf per induced tree and target, split above 1.5 `max_points` rows.
        "momogp": {
            "experts": ("matern32",),
            "clock": False,
            "coupling": "independent",
            "weights": "posterior",
            "split_by": "variance",
            "n_components": 2,
            "n_groups": 2,
            "mixture_depth": None,
            "discount": 1.0,
            "max_points": 500,
        },
    }
)
"""Presets for streams: ``momostream.MOMoGPRegressor(**STREAM_PRESETS["momogp"])``."""
