"""Rivals, scores and reports of the benchmarks, named after the benchmark that they serve."""

from __future__ import annotations
