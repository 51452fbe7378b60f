"""Predictive distributions: Student-t mixtures, joint distributions, predictions of rows, and forecasts."""

from __future__ import annotations
