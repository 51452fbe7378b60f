"""Checks of a monitor in a file or a store; see `momostream._checks`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from momostream._checks import Shape, Table, check_array, check_indices, check_state, count, flag, number
from momostream.monitor.normal import LAGS, LEVELS, SPEEDS

__all__ = ["check_held", "check_monitor", "check_span", "check_suspects"]

_P, _E = "columns", "evidence"
MONITOR: Table = {
    "n_learnt": count(), "next_fit": count(), "n_past": count(LAGS + 1), "past": Shape((LAGS, _P)),
    "means": Shape((len(SPEEDS), _E)),
}  # fmt: skip
NORMAL: Table = {
    "ready": Shape((_P,), np.bool_), "centre": Shape((_P,)), "scale": Shape((_P,)), "weights": Shape(("features", _P)),
    "std": Shape((_P,)), "precision": Shape((_P, _P)), "given_std": Shape((_P,)), "size_centre": number(),
    "size_std": number(), "norms": Shape((len(SPEEDS), _E)), "dof": Shape((len(SPEEDS),)),
    "knots": Shape((len(LEVELS),)), "tail_scale": number(), "tail_shape": number(),
}  # fmt: skip
ROWS: Table = {
    "lags": Shape(("rows", LAGS, _P)), "values": Shape(("rows", _P)), "known": Shape(("rows", _P), np.bool_),
}  # fmt: skip
SPAN: Table = {
    "begin": count(), "end": count(), "severity": number(), "released": flag(), "columns": Shape((4, _P)),
}  # fmt: skip


def check_monitor(state: Mapping[str, Any], n_columns: int, window: int) -> None:
    """Check the model of a monitor of so many columns, before anything of this size is allocated."""
    sizes = {_P: n_columns, _E: 2 * n_columns + 1, "features": 1 + LAGS * n_columns}
    check_state("monitor", state, {"n_columns": count(n_columns + 1, n_columns), **MONITOR}, sizes)
    n_rows = check_held("monitor / rows", state["rows"], n_columns)
    check_indices("monitor / rows", [n_rows], min(state["n_learnt"], window), window + 1)
    for at, raw in state["alarms"]:
        check_state("monitor / alarms", {"at": at, "raw": raw}, {"at": count(), "raw": number()})
    if state["normal"] is not None:
        check_state("monitor / normal", state["normal"], NORMAL, sizes)
        # Files of earlier versions lack it.
        if state["normal"].get("reach") is not None:
            check_array("monitor / normal / reach", state["normal"]["reach"], (2, n_columns))


def check_held(part: str, state: Any, n_columns: int) -> int:
    """Check rows that are kept or held; returns their number."""
    return check_state(part, dict(zip(ROWS, state, strict=True)), ROWS, {_P: n_columns})["rows"]


def check_span(part: str, state: Mapping[str, Any], n_columns: int) -> None:
    """Check an event."""
    check_state(part, state, SPAN, {_P: n_columns})
    begin, end = state["times"]
    check_state(f"{part} / times", {"begin": begin, "end": end}, {"begin": number(), "end": number()})


def check_suspects(state: Any, n_columns: int) -> None:
    """Check the columns that explain an event."""
    past, errors, n_rows = state
    check_array("suspects / past", past, (LAGS, n_columns))
    check_array("suspects / errors", errors, (n_columns,))
    check_indices("suspects / n_rows", [n_rows], 0, 1 << 31)
