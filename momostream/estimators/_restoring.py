"""Checks of a forecaster in a file or a store, besides its model; see `momostream._checks`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from momostream._checks import Table, check_array, check_state, count, flag, instance_of, number, optional

__all__ = ["check_learnt"]

#: What a forecaster has learnt besides its model.
LEARNT: Table = {
    "single": optional(flag()), "step": optional(number()), "look": count(start=1), "n_rows": count(),
    "history": instance_of(list, "a list"),
}  # fmt: skip


def check_learnt(state: Mapping[str, Any], n_series: int) -> None:
    """Check what a forecaster of so many series has learnt besides its model."""
    check_state("state", state, LEARNT)
    if state["step"] is not None and not state["step"] > 0.0:
        raise ValueError(f"state / step is {state['step']}, expected a number above 0")
    # Earlier versions wrote none.
    for label in state.get("labels", ()):
        check_state("labels", {"label": label}, {"label": optional(instance_of(str, "a text"))})
    for row, weights in state["history"]:
        check_state("history", {"row": row}, {"row": count()})
        check_array("history / weights", weights, (None, n_series))
