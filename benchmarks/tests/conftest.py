from __future__ import annotations

from tests.conftest import _global_seeds, data_dir, rng

__all__ = ["_global_seeds", "data_dir", "rng"]
