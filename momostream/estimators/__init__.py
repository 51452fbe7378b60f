"""The three estimators that users import, with backtests, metrics and presets."""

from __future__ import annotations
