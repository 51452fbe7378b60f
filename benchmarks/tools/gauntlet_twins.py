"""Twins of estimators: ways in which a model leaves memory and comes back, and how two are compared to the bit."""

from __future__ import annotations

import hashlib
import os
import pickle
import shutil
import struct
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from momostream import load
from momostream.sklearn import MOMoGPRegressor as TableRegressor
from momostream.storage.blocks import Packed, Parts
from momostream.storage.tables import table_to_tree
from momostream.store import Store

__all__ = ["TWINS", "HistoryError", "Shelf", "check", "checksum", "numbers", "plain"]

# In memory where there is such a folder: files are synced to the disk.
_FOLDER = "/dev/shm" if os.path.isdir("/dev/shm") else None
_PLAIN = {bool, int, str, bytes}


class HistoryError(AssertionError):
    """A history that went wrong, with the seed that repeats it."""


def checksum(model: Any) -> str:
    """Digest of everything that an estimator has learnt, in a fifth of the time that the bytes of a file take."""
    parts: list[bytes] = []
    _flatten(_table_state(model) if isinstance(model, TableRegressor) else model._state(), parts)
    return hashlib.sha256(b"".join(parts)).hexdigest()


def _table_state(model: Any) -> Any:
    """What a table estimator has learnt, by value: which equal objects are one is of no account, nor are spare rows."""
    tree = table_to_tree(model)
    objects, made = tree["objects"], {}

    def expanded(value: Any) -> Any:
        if type(value) is list and len(value) == 2 and value[0] == "object":
            if value[1] not in made:
                kind, kept = objects[value[1]]
                kept = {name: expanded(item) for name, item in kept.items()}
                if kind == "Region":
                    rows = slice(kept["n_rows"])
                    kept |= {name: kept[name][1][rows] for name in ("_X", "_Y")}
                    del kept["_targets"]  # filled when asked for
                parts: list[bytes] = [kind.encode()]
                _flatten(kept, parts)
                made[value[1]] = hashlib.sha256(b"".join(parts)).digest()
            return made[value[1]]
        return [expanded(item) for item in value] if type(value) is list else value

    return [expanded(value) for value in tree["fitted"].values()]


def _flatten(value: Any, parts: list[bytes]) -> None:
    """Append everything in a state of plain data, with types and sizes; another kind of value is an error."""
    kind = type(value)
    if kind is dict:
        parts.append(b"dict %d " % len(value))
        for key, item in value.items():
            parts.append(repr(key).encode())
            _flatten(item, parts)
    elif kind is list or kind is tuple:
        parts.append(b"%s %d " % (kind.__name__.encode(), len(value)))
        for item in value:
            _flatten(item, parts)
    elif kind is np.ndarray:
        parts += (f"{value.dtype.str} {value.shape} ".encode(), value.tobytes())
    elif kind is float:
        parts.append(struct.pack("<cd", b"f", value))
    elif value is None or kind in _PLAIN:
        parts.append(f"{value!r} ".encode())
    else:
        raise TypeError(f"a state holds a {kind}")


def by_file(model: Any) -> Any:
    """The estimator after it was saved and loaded."""
    descriptor, path = tempfile.mkstemp(suffix=".momo", dir=_FOLDER)
    os.close(descriptor)
    try:
        model.save(path)
        return load(path)
    finally:
        os.remove(path)


def by_blocks(model: Any) -> Any:
    """The estimator after it was cut into the blocks of a store and joined again."""
    return Parts.join(Parts.of(model).changes({}, 4096).write)


TWINS: dict[str, Callable[[Any], Any]] = {
    "file": by_file,
    "pickle": lambda model: pickle.loads(pickle.dumps(model)),
    "packed": lambda model: Packed(model).model(),
    "blocks": by_blocks,
}


class Shelf:
    """A store in which a model rests, as those of a fleet do: each time only the blocks that changed are written."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(dir=_FOLDER))

    def __call__(self, model: Any) -> Any:
        """The estimator after it was written over what the store holds, and read by another process's eyes."""
        path = self.folder / "shelf.store"
        with Store(path, block_bytes=4096) as store:
            store.put("model", model)
            store.commit()
        with Store(path, read_only=True) as store:
            return store.load("model")

    def close(self) -> None:
        """Remove the store."""
        shutil.rmtree(self.folder)


def plain(value: Any) -> Any:
    """An answer as something that compares by `repr`, floats to the bit."""
    if isinstance(value, pd.DataFrame):
        return [list(map(str, value.columns)), plain(value.to_numpy(dtype=float))]
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, dict):
        return {repr(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return float(value) if isinstance(value, np.floating) else value


def numbers(value: Any) -> list[float]:
    """All numbers of a plain answer."""
    if isinstance(value, dict):
        return [number for item in value.values() for number in numbers(item)]
    if isinstance(value, list):
        return [number for item in value for number in numbers(item)]
    return [] if isinstance(value, str | bool) or value is None else [float(value)]


def check(fine: bool, words: str) -> None:
    """Raise an error that describes what is wrong; not an assert statement, which Python may leave out."""
    if not fine:
        raise HistoryError(words)
