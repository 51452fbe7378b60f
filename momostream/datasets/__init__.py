"""Simulated wind turbines, and farms of them."""

from __future__ import annotations

from momostream.datasets.wind import WindFarm, WindTurbine

__all__ = ["WindFarm", "WindTurbine"]
