"""Checks of what a store holds beside models; see `momostream._checks`. Digests do not show who wrote it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from momostream._checks import MOST_ROWS, Table, check_state, count, instance_of, number
from momostream.storage.blocks import POSITION_BITS
from momostream.storage.container import FileFormatError
from momostream.storage.lines import LINES

__all__ = [
    "ENTRY_BYTES",
    "check_about",
    "check_contents",
    "check_fleet",
    "check_notes",
    "check_position",
    "check_times",
    "check_totals",
]

#: Bytes of a block in the table of contents.
ENTRY_BYTES = 16

_TEXT, _BYTES, _DICT = instance_of(str, "a text"), instance_of(bytes, "bytes"), instance_of(dict, "a dict")
TOTALS: Table = {
    "next_id": count(), "mixed": count(1 << 64),
    **{name: count() for line in LINES for name in (line, f"{line} forgotten")},
}  # fmt: skip
POSITION: Table = {"name": _TEXT, "offset": count(), "number": count(), "n_bad": count(), "more": _DICT}
# Positions of blocks are whole numbers of 64 bits.
MODEL: Table = {"number": count(1 << (62 - POSITION_BITS)), "kind": _TEXT, "n_rows": count(), "contents": _BYTES}


def _check(part: str, state: Any, table: Table, only: bool = False) -> Any:
    """Return a state that fits a table; with ``only``, one that has no other entries."""
    try:
        check_state(part, state, table)
    except ValueError as error:
        raise FileFormatError(str(error)) from None
    if only and state.keys() - table.keys():
        raise FileFormatError(f"{part} / {next(iter(state.keys() - table.keys()))} is unknown")
    return state


def check_totals(totals: Any) -> dict[str, int]:
    """Totals of a store."""
    found: dict[str, int] = _check("totals", totals, TOTALS)
    return found


def check_position(position: Any) -> dict[str, Any]:
    """Position of a source."""
    found: dict[str, Any] = _check("position", position, POSITION, only=True)
    return found


def check_contents(values: list[Any]) -> None:
    """Number, kind, rows and table of contents of a model."""
    _check("model", dict(zip(MODEL, values, strict=True)), MODEL)
    if len(values[3]) % ENTRY_BYTES:
        raise FileFormatError("model / contents is cut off")


def check_times(times: Any) -> list[list[float]]:
    """Times, each with the numbers of lines until then."""
    if not isinstance(times, list):
        raise FileFormatError(f"times is a {type(times).__name__}, expected a list")
    table = {"at": number(), **dict.fromkeys(LINES, count(MOST_ROWS))}
    for entry in times:
        if not isinstance(entry, list) or len(entry) != len(table):
            raise FileFormatError("times has an entry of another form")
        _check("times", dict(zip(table, entry, strict=True)), table)
    return times


def check_notes(notes: Any) -> dict[str, Any]:
    """Plain data of the caller."""
    found: dict[str, Any] = _check("notes", notes, {})
    return found


def check_about(about: Any) -> dict[str, Any]:
    """Plan and settings of a run; nothing before the first one."""
    if about == {}:
        return {}
    found: dict[str, Any] = _check("notes / about", about, {"plan": _DICT, "settings": _DICT})
    for name in found["settings"]:
        _check("notes / about / settings", {"name": name}, {"name": _TEXT})
    _check(
        "notes / about / plan", found["plan"], {name: instance_of(tuple, "a tuple") for name in ("targets", "inputs")}
    )
    for name in (*found["plan"]["targets"], *found["plan"]["inputs"]):
        _check("notes / about / plan", {"column": name}, {"column": _TEXT})
    return found


def check_fleet(notes: Mapping[str, Any]) -> None:
    """Notes of a fleet: plain data about it, and hyper-parameters to start from, if there are some."""
    _check("notes", {"about": {}, "kin": [], **notes}, {"about": _DICT, "kin": instance_of(list, "a list")})
    for entry in notes.get("kin", []):
        if not isinstance(entry, list) or len(entry) != 3 or not isinstance(entry[1], list):
            raise FileFormatError("notes / kin has an entry of another form")
        values = entry[2]
        fits = isinstance(values, np.ndarray) and values.dtype == np.float64 and values.shape == (len(entry[1]) + 1,)
        if not fits:
            raise FileFormatError("notes / kin has other numbers than names")
