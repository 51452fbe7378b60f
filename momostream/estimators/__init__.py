"""What users import: the three estimators, backtests, metrics, presets."""

from __future__ import annotations
