"""Checks of the model of many steps ahead in a file or a store, before compiled code sees it; see `momostream._checks`.

A part must have the types and shapes of a fresh one of the same sizes; the table lists what may differ.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from momostream._checks import (
    MOST_ROWS,
    Shape,
    Table,
    check_array,
    check_indices,
    check_state,
    check_whole,
    count,
    like,
)
from momostream.horizon.levels import N_SAMPLE
from momostream.horizon.settings import LONGEST_SEASON
from momostream.horizon.smoothing import STRENGTHS
from momostream.kernels.horizon import ALIKE

__all__ = ["check_ahead", "check_model", "check_own", "check_part", "check_tails", "checked_past"]

#: By part, the entries that may differ from those of a fresh part.
FREE: dict[str, Table] = {
    "past": {"series": Shape(("rows", 4, "series")), "observed": Shape(("rows", "series"))},
    "levels": {"sample": Shape((None, "series")), "apart": count(start=1)},
    "smoothing": {"chosen": Shape(("series",), np.int64, (0, len(STRENGTHS)))},
    "ring": {name: Shape(("horizon",), np.int64, (-1, MOST_ROWS)) for name in ("kept", "seen")},
}
MOST_SEASONS = 8


def check_model(state: Mapping[str, Any], horizon: int, n_series: int, n_inputs: int) -> None:
    """Check the sizes of a model, before anything of these sizes is allocated."""
    sizes = {"n_series": count(n_series + 1, n_series), "n_inputs": count(n_inputs + 1, n_inputs)}
    check_state("model", state, {**sizes, "look": count(start=1)})
    checked_past(state["past"], n_series)
    check_state("ring", state["ring"], FREE["ring"], {"horizon": horizon})
    for name in ("seasons", "seen"):
        _check_seasons(f"model / {name}", state[name])
    if state.get("shown") is not None:
        _check_seasons("model / shown", [state["shown"]])


def checked_past(state: Mapping[str, Any], n_series: int) -> Mapping[str, Any]:
    """The state of a past, after a check of its rows: as many of each kind."""
    check_state("past", state, {**FREE["past"], "inputs": Shape(("rows", 2, None))}, {"series": n_series})
    return state


def _check_seasons(part: str, seasons: Any) -> None:
    if not isinstance(seasons, list) or len(seasons) > MOST_SEASONS:
        raise ValueError(f"{part} is {repr(seasons)[:80]}, expected at most {MOST_SEASONS} lengths")
    # What is found may be two or seven times as long as what can be set.
    check_indices(part, seasons, 1, 7 * LONGEST_SEASON)


def check_part(part: str, state: Mapping[str, Any], fresh: Mapping[str, Any], sizes: Mapping[str, int]) -> None:
    """Check a part against the state of a fresh one; ``sizes`` are those that the table names."""
    table = {**like(fresh), **FREE.get(part, {})}
    if part == "past":
        table["inputs"] = Shape(("rows", *fresh["inputs"].shape[1:]))
    sizes = check_state(part, state, table, sizes)
    if part == "levels":
        check_indices("levels / sample", [len(state["sample"])], 0, N_SAMPLE + 1)
    if part == "past":
        room, n_rows = 2 * fresh["capacity"], sizes["rows"]
        check_indices("past / first", [state["first"]], 0, room - n_rows + 1)
        check_indices("past / n_rows", [min(state["n_rows"], fresh["capacity"])], 0, n_rows + 1)


def check_tails(part: str, tails: Any, n_tails: int) -> None:
    """Check numbers by which tables of tails are looked up."""
    check_whole(part, tails, 0, n_tails)


def check_own(state: Mapping[str, Any], n_weights: int) -> None:
    """Check seasons and turn of the regressions on own lags, before arrays for so many seasons are allocated."""
    check_array("own / seasons", state["seasons"], (None,), np.int64)
    _check_seasons("own / seasons", [length for length in state["seasons"].tolist() if length != ALIKE])
    check_state("own", state, {"next": count(max(n_weights, 1))})


def check_ahead(state: Any, horizon: int, n_terms: int) -> None:
    """Check the calendar of the newest row and of the steps after it."""
    terms, alike = state
    check_array("ahead / terms", terms, (1 + horizon, n_terms))
    check_state("ahead", {"alike": alike}, {"alike": Shape((1 + horizon,), np.int64, (0, 7 * LONGEST_SEASON))})
