"""Compiled loops, one room for each kind of work; they know numpy and numba only.

Letters used throughout:

* ``S`` (rows, D): *scaled coordinates*, inputs divided by their lengthscales; ``s``, ``T`` likewise.
* ``L``: a lower triangle packed by rows; row ``i`` starts at ``i * (i + 1) // 2`` and has ``i + 1`` entries,
  so that appending a row is a contiguous write and a solve is a sequence of dots of contiguous rows.
* ``Y``, ``Z`` (rows, P): centred targets and the solved targets ``L^-1 Y``.
* ``v``: ``L^-1 k(S, s)`` for one point ``s``.
* ``n``: rows in use; arrays may have room for more.

The covariance is ``k(s, t) = corr(|s - t|^2) + linear * (s . t)`` where ``kind`` names ``corr`` and
``linear >= 0``.

Arrays are C-contiguous float64; `L` and `v` may, both, be float32. Arrays that a kernel only reads may be read-only
memory. Lengths are not checked: the callers in this package know them.
"""

from __future__ import annotations
