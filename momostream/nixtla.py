"""The model for Nixtla's StatsForecast: a public door to `momostream.estimators.nixtla_model`."""

from __future__ import annotations

from momostream.estimators.nixtla_model import MOMoGP

__all__ = ["MOMoGP"]
