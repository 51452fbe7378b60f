"""Scripts that measure; each prints its table and writes it to ``benchmarks/results``."""

from __future__ import annotations
