"""Scores of predicted distributions as river metrics: a public door to `momostream.estimators.metrics`."""

from __future__ import annotations

from momostream.estimators.metrics import CRPS, NLPD, Coverage, EnergyScore, Width, WithDist

__all__ = ["CRPS", "NLPD", "Coverage", "EnergyScore", "Width", "WithDist"]
