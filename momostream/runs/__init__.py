"""Predict and learn a whole feed: plan, fleet, run, scores."""

from __future__ import annotations
