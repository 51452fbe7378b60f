"""Model files that somebody has changed and given a valid checksum: refused in words, or they work.

A file is changed in its structure (an entry of another type, shape, size or value, or none), in its header (types,
shapes, offsets, nesting) or in its bytes; what is changed is drawn from one seed. Files are read in processes forked
from this one, so that a crash of the interpreter is seen and counted; memory beyond a limit cannot be had there.
"""

from __future__ import annotations

import hashlib
import json
import os
import resource
import signal
import struct
import tempfile
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

import momostream
from momostream import MOMoGPForecaster, MOMoGPMonitor, MOMoGPRegressor, load
from momostream.sklearn import MOMoGPRegressor as TableRegressor
from momostream.storage import container
from momostream.storage.models import to_tree
from momostream.storage.tables import table_to_tree

__all__ = ["KINDS", "changed_file", "in_forks", "is_said", "read_files", "where"]

KINDS = ("regressor", "forecaster", "monitor", "table")
# Seconds that reading and using a file may take, and bytes beyond those of the process before.
MOST_SECONDS, MOST_BYTES = 60, 1 << 29
HOSTILE: list[Any] = [
    None, True, -1, 0, 1, 7, 1 << 31, -(1 << 31), 1 << 40, 1 << 62, (1 << 63) - 1, 1 << 70, -(1 << 63), 0.5, -0.0,
    float("nan"), float("inf"), 1e308, 5e-324, "", "x", "\x00", "nan", [], [0], {}, (), b"", [[]], [None], {"a": 1},
]  # fmt: skip
DTYPES = (np.float64, np.float32, np.int64, np.int32, np.uint8, np.bool_, np.complex128)
# A loaded model may not fail in use with these; a ValueError or LinAlgError says in words what is wrong with a value.
FAULTS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    MemoryError,
    NameError,
    RecursionError,
    TypeError,
)


@cache
def base(kind: str) -> bytes:
    """A file that this version writes, of a model that has learnt a few rows."""
    random = Random(0)
    if kind == "table":
        rng = np.random.default_rng(0)
        X = rng.normal(size=(60, 2))
        Y = np.column_stack([np.sin(X[:, 0]), X[:, 1]])
        return container.dumps("table", table_to_tree(TableRegressor(max_points=16, random_state=0).fit(X, Y)))
    if kind == "monitor":
        model: Any = MOMoGPMonitor("1 per 50 rows", warm_up=30, window=50)
        for t in range(70):
            model.learn_one({"a": random.gauss(50.0 if t > 66 else 0.0, 1.0), "b": random.gauss(0.0, 1.0)})
    elif kind == "forecaster":
        experts = ("last value", "season", "own lags", "wide lags", "iterated lags", "matern32", "residual matern32")
        model = MOMoGPForecaster(horizon=2, experts=experts, lags=2, max_points=12, window=40, time="t", seed=0)
        for t in range(80):
            at = datetime(2024, 1, 1) + timedelta(hours=t)
            model.learn_one({"a": random.gauss(0.0, 1.0), "b": t % 7}, {"u": t % 3, "t": at})
    else:
        model = MOMoGPRegressor(
            max_points=12, n_components=2, n_groups=2, window=60, tuning_points=12, first_tuning=8, tuning_interval=64,
            seed=0,
        )  # fmt: skip
        for t in range(80):
            x = random.gauss(0.0, 1.0)
            model.learn_one({"wind": x, "t": t % 7}, {"power": x * x, "load": x, "level": random.random()})
    return container.dumps(*to_tree(model))


def places(tree: Any) -> list[tuple[Any, Any]]:
    """All containers with their keys: entries that can be replaced."""
    found: list[tuple[Any, Any]] = []
    waiting = [tree]
    while waiting:
        here = waiting.pop()
        keys = list(here) if isinstance(here, dict) else range(len(here))
        for key in keys:
            found.append((here, key))
            if isinstance(here[key], dict | list):
                waiting.append(here[key])
    return found


def other_array(array: np.ndarray[Any, Any], random: Random) -> Any:
    """An array of another type, shape or content."""
    change = random.randrange(8)
    if change == 0:
        return array.astype(random.choice(DTYPES))
    if change == 1:
        return array[: random.randrange(len(array) + 1)] if array.ndim else array
    if change == 2:
        return np.concatenate([array, array]) if array.ndim else array
    if change == 3:
        return np.ascontiguousarray(array.T) if array.ndim > 1 else array[None]
    if change == 4:
        return np.zeros((0, *random.choice([(10**9,), (1 << 40,), (3,)])), array.dtype)
    other = array.copy()
    if not other.size:
        return np.zeros(random.randrange(5))
    values = [-1, 1 << 31, 1 << 62, -(1 << 62)] if other.dtype.kind in "iu" else [np.nan, np.inf, -1e300, 1e9, -1.0]
    if change == 5:
        other[...] = np.array(random.choice(values)).astype(other.dtype)
    else:
        other.reshape(-1)[random.randrange(other.size)] = np.array(random.choice(values)).astype(other.dtype)
    return other


def change_tree(tree: Any, random: Random) -> None:
    """Change one entry."""
    here, key = random.choice(places(tree))
    value = here[key]
    if isinstance(value, np.ndarray) and random.random() < 0.9:
        here[key] = other_array(value, random)
    elif random.random() < 0.1:
        del here[key]
    elif isinstance(value, list) and value and random.random() < 0.5:
        here[key] = random.choice([value[:-1], value + value[-1:], value[::-1], [value], value * 50])
    elif isinstance(value, int) and not isinstance(value, bool) and random.random() < 0.5:
        here[key] = value + random.choice([-1, 1, -7, 64, 1 << 20])
    elif random.random() < 0.1:
        nested: Any = 0
        for _ in range(90):
            nested = [nested]
        here[key] = nested
    else:
        here[key] = random.choice(HOSTILE)


def sealed(header: bytes, payload: bytes) -> bytes:
    """A file of this header and these arrays, with sizes and checksum that fit."""
    whole = struct.pack("<8sIQQ", b"momostrm", 1, len(header), len(payload)) + header + payload
    return whole + hashlib.sha256(whole).digest()


def change_header(data: bytes, random: Random) -> bytes:
    """Change the description of one array, or the text of the header."""
    _, _, header_size, payload_size = struct.unpack_from("<8sIQQ", data)
    start = struct.calcsize("<8sIQQ")
    header, payload = data[start : start + header_size], data[start + header_size : start + header_size + payload_size]
    fields = json.loads(header)
    change = random.randrange(5)
    if change < 3:
        entry = random.choice(fields["arrays"])
        key = random.choice(list(entry))
        entry[key] = random.choice(
            [*HOSTILE[:21], "<f8", "|O", "<U9", [1 << 40], [1 << 31, 1 << 31], [-1], [0, 1 << 60]]
        )
        entry[key] = None if isinstance(entry[key], float) and entry[key] * 0 != 0 else entry[key]
        header = json.dumps(fields).encode()
    elif change == 3:
        depth = random.choice([50, 200, 5000, 100_000])
        header = b'{"kind": "regressor", "arrays": [], "tree": ' + b"[" * depth + b"]" * depth + b"}"
    else:
        text = bytearray(header)
        for _ in range(random.randint(1, 3)):
            text[random.randrange(len(text))] = random.randrange(256)
        header = bytes(text)
    return sealed(header, payload)


def changed_file(kind: str, seed: int) -> bytes:
    """A changed file with a valid checksum."""
    random, data = Random(f"{kind} {seed}"), base(kind)
    chance = random.random()
    if chance < 0.15:
        return change_header(data, random)
    if chance < 0.2:
        body = bytearray(data[:-32])
        for _ in range(random.randint(1, 4)):
            body[random.randrange(len(body))] = random.randrange(256)
        return bytes(body) + hashlib.sha256(body).digest()
    name, tree = container.loads(data)
    for _ in range(random.choice([1, 1, 1, 2, 4])):
        change_tree(tree, random)
    try:
        return container.dumps(name, tree)
    except (TypeError, ValueError):
        # Nothing that a file could hold: the next seed.
        return changed_file(kind, seed + 1_000_000_007)


def use(model: Any, kind: str) -> None:
    """Ask a model for all that it does, and let it learn."""
    if kind == "table":
        X = np.zeros((3, model.n_features_in_))
        model.predict(X, return_std=True)
        model.partial_fit(X, np.zeros((3, model.model_.n_targets)))
        model.predict(X)
        return
    random = Random(0)
    for t in range(12):
        if kind == "regressor":
            x, y = {"wind": random.gauss(0.0, 1.0), "t": t % 7}, {"power": 1.0, "load": random.random(), "level": 0.5}
            found = model.predict_one(x, with_dist=True)
            if found:
                found.interval(0.9)
            model.learn_one(x, y)
        elif kind == "monitor":
            model.score_one({"a": 0.3, "b": random.random()})
            model.learn_one({"a": random.gauss(0.0, 1.0), "b": 0.0})
        else:
            model.learn_one(
                {"a": random.random(), "b": 1.0}, {"u": 1.0, "t": datetime(2024, 2, 1) + timedelta(hours=t)}
            )
            model.forecast(2, with_dist=True).interval(0.9)
    model.describe()
    container.dumps(*to_tree(model))


def read_file(kind: str, seed: int, path: Path) -> str:
    """Read and use a changed file: "refused", "works", "fails in words", or what is wrong."""
    path.write_bytes(changed_file(kind, seed))
    try:
        model = load(path)
    except container.FileFormatError as error:
        if isinstance(error.__cause__, MemoryError):
            return "asked for much more memory than its size"
        return "refused" if len(str(error)) > len(str(path)) + 10 else f"refused without words: {error!r}"
    except Exception as error:
        return f"not refused in words: {error!r} {where(error)}"
    try:
        use(model, kind)
    except FAULTS as error:
        if not is_said(error):
            return f"loaded and failed in use: {error!r} {where(error)}"
        return "fails in words"
    except Exception:
        return "fails in words"
    return "works"


def is_said(error: BaseException) -> bool:
    """Whether a line of momostream raised this error on purpose, as of a row that settings in the file rule out."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    is_ours = Path(last.filename).is_relative_to(Path(momostream.__file__).parent)
    return is_ours and (last.line or "").startswith("raise ") and len(str(error)) > 20


def where(error: BaseException) -> str:
    """File and line of an error."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"({Path(last.filename).name}:{last.lineno})"


def read_files(kind: str, seeds: range) -> tuple[Counter[str], dict[int, str]]:
    """Read changed files in forked processes; counts, and failures by seed."""
    base(kind)
    return in_forks(lambda seed, folder: read_file(kind, seed, folder / "changed.momo"), seeds)


def in_forks(read: Callable[[int, Path], str], seeds: range) -> tuple[Counter[str], dict[int, str]]:
    """Outcomes of seeds, read in a forked process, and in further ones after a crash; counts, and failures by seed."""
    counts: Counter[str] = Counter()
    wrong: dict[int, str] = {}
    waiting = list(seeds)
    while waiting:
        done = _in_fork(read, waiting)
        for seed, outcome in done:
            if outcome in ("refused", "works", "fails in words"):
                counts[outcome] += 1
            else:
                wrong[seed] = outcome
        waiting = waiting[len(done) :]
    return counts, wrong


def _in_fork(read: Callable[[int, Path], str], seeds: list[int]) -> list[tuple[int, str]]:
    """Outcomes of seeds in order, in a process of their own; the last is that of a crash if there was one."""
    reader, writer = os.pipe()
    pid = os.fork()
    if not pid:
        _child(read, seeds, writer)
    os.close(writer)
    with os.fdopen(reader, encoding="utf-8") as lines:
        found = [json.loads(line) for line in lines if line.endswith("\n")]
    _, status = os.waitpid(pid, 0)
    done = [(seed, outcome) for seed, outcome in found]
    if len(done) < len(seeds):
        code = os.waitstatus_to_exitcode(status)
        what = f"hung for {MOST_SECONDS} s" if code == -signal.SIGALRM else f"ended the process with {code}"
        done.append((seeds[len(done)], what))
    return done


def _child(read: Callable[[int, Path], str], seeds: list[int], writer: int) -> None:
    code = 1
    try:
        # What compiled code or a warning has to say is not of interest here.
        null = os.open(os.devnull, os.O_WRONLY)
        for stream in (1, 2):
            os.dup2(null, stream)
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        most = pages * resource.getpagesize() + MOST_BYTES
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
        warnings.simplefilter("ignore")
        with tempfile.TemporaryDirectory() as folder:
            for seed in seeds:
                signal.setitimer(signal.ITIMER_REAL, MOST_SECONDS)
                try:
                    outcome = read(seed, Path(folder))
                except Exception as error:
                    outcome = f"the trial itself failed: {error!r} {where(error)}"
                os.write(writer, (json.dumps([seed, outcome[:500]]) + "\n").encode())
        code = 0
    finally:
        # Not further: this is a copy of the process that counts.
        os._exit(code)
