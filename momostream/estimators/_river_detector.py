"""River's base class of detectors, from where the installed version has it."""

from __future__ import annotations

try:
    from river.base import AnomalyDetector
except ImportError:  # before 0.26
    from river.anomaly.base import AnomalyDetector  # type: ignore[no-redef,unused-ignore]

__all__ = ["AnomalyDetector"]
