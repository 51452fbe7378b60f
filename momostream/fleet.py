"""Many models by key: a public door to `momostream.runs.fleet`."""

from __future__ import annotations

from momostream.runs.fleet import Fleet

__all__ = ["Fleet"]
