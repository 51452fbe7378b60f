"""One model per key, as many as there are sensors or machines, within a budget of memory.

A `Fleet` makes a model when the first row of a key comes and keeps those in use in memory. Beyond its budget, it moves
the ones used least recently to the store, or compresses them in memory if there is none: without their factors, which
are most of a model and can be rebuilt. A model that is loaded again continues bit for bit as if it had never left.
"""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from statistics import median
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from momostream.estimators.monitor import MOMoGPMonitor
from momostream.estimators.regressor import LEAST_PARAMETER, MOMoGPRegressor
from momostream.estimators.vocabulary import Vocabulary
from momostream.runs.fleet_frames import FleetFrames
from momostream.storage.blocks import Packed, Parts
from momostream.storage.keys import is_side_key, side_key
from momostream.storage.restoring import check_fleet
from momostream.storage.store import DeadLetter, Key, Output, Position, Store, StoreError, plain_key

if TYPE_CHECKING:
    from momostream.storage.blocks import Model

__all__ = ["Fleet"]

# Warm starts: how many models a new one starts from, and the rows at which a model first passes on its
# hyper-parameters; it does so again whenever its rows have doubled.
N_DONORS, DONOR_ROWS = 16, 200
# Uses after which the size of a model is looked up again, at the least; it changes slowly.
SIZE_EVERY = 16
# Of a model, beside its arrays.
MODEL_BYTES = 100_000


class _LoadedModel:
    """A model in memory, and its size when that was last looked up."""

    __slots__ = ("left", "model", "nbytes", "wait")

    def __init__(self, model: Model) -> None:
        self.model = model
        self.nbytes = 0
        # A model that was loaded again rebuilds its factors and grows fast: looked at after 1, 2, 4, ... uses.
        self.wait = self.left = 1


class Fleet(FleetFrames):
    """Models by key: rows in, predictions out, as many in memory as the budget allows.

    Parameters
    ----------
    template
        A model without rows, whose parameters every new key gets; or a function that returns a model for a key.
    store
        Store for models and commits. Without one, models that are not in use stay in memory, compressed.
    memory_budget
        Bytes for all models, loaded and compressed. The model in use stays, whatever its size.
    warm_start
        A new model starts from the hyper-parameters of other keys, if there are some: the median over the last 16
        models that have reached 200 rows or doubled since. That helps its first thirty rows or so; its predictions then
        depend on the order in which rows of different keys come, though not on which models are in memory.
    kin
        Older name of ``warm_start``.

    Notes
    -----
    All models in a store belong to the same position of the source, that of the last commit, or rows would be lost or
    learnt twice after a crash. So a model that has to leave memory between two commits is put into the transaction that
    the next `commit` ends: others do not see it before, and without that commit it is as it was. `close` does not
    commit, for the same reason.

    Every call that uses a model counts as a change of it: which factors there are, and which parts were used last, is
    part of a model. A drift detector starts afresh when a model is loaded again, as it does with `momostream.load`.

    Use a fleet from one thread at a time.

    Examples
    --------
    >>> from momostream import MOMoGPRegressor
    >>> from momostream.datasets.wind import WindFarm
    >>> fleet = Fleet(MOMoGPRegressor(clock="time", seed=0))
    >>> for key, x, y in WindFarm(3, seed=0).take(300):
    ...     prediction = fleet.predict_one(key, x)
    ...     fleet.learn_one(key, x, y)
    >>> list(fleet), fleet.n_live, fleet.model("T02").n_rows
    (['T01', 'T02', 'T03'], 3, 100)
    >>> fleet.predict_one("T04", x)
    {}
    """

    def __init__(
        self,
        template: Model | Callable[[Any], Model],
        *,
        store: Store | None = None,
        memory_budget: int = 1 << 30,
        warm_start: bool = False,
        kin: bool | None = None,
    ) -> None:
        if isinstance(memory_budget, bool) or not isinstance(memory_budget, int) or memory_budget < 0:
            raise ValueError(f"memory_budget={memory_budget!r} is not accepted: use a whole number of bytes, or 0")
        if not callable(template) and template.n_rows:
            raise ValueError("the template has learnt rows: use a model without any")
        self.template, self.store, self.memory_budget = template, store, memory_budget
        self.warm_start = warm_start if kin is None else kin
        # Loaded models, least recently used first.
        self._live: OrderedDict[Key, _LoadedModel] = OrderedDict()
        self._packed: dict[Key, Packed] = {}
        self._changed: set[Key] = set()
        # Of a commit that was begun: models that are still as they were then.
        self._unwritten: dict[Key, None] = {}
        self._is_committing = False
        #: Seconds that the newest commit in parts has taken so far.
        self.commit_seconds = 0.0
        #: Whether a model had to leave memory since the last commit was begun.
        self.is_short_of_memory = False
        self._keys: set[Key] = set() if store is None else set(store.keys(side=True))
        self._n_side = sum(map(is_side_key, self._keys))
        self._live_bytes = self._packed_bytes = 0
        #: Plain data about the fleet, which its store keeps.
        self.about: dict[str, Any] = {}
        # By key, newest last: lengthscales by input, and noise, from which new models start.
        self._donors: OrderedDict[Key, tuple[dict[Any, float], float]] = OrderedDict()
        if store is not None:
            try:
                self._read_notes(store.notes)
            except ValueError as error:
                raise StoreError(f"{store.path}: {error}") from error

    @property
    def kin(self) -> bool:
        """Older name of `warm_start`."""
        return self.warm_start

    # ------------------------------------------------------------------ rows

    def learn_one(self, key: Any, x: Mapping[Any, Any] | None, y: Any = None) -> None:
        """Learn one row of a key; the first row of a key makes its model.

        Parameters
        ----------
        key
            A text, a whole number, or a tuple of such.
        x
            Inputs by name; for monitors all columns.
        y
            Targets by name; for forecasters the series; None for monitors.
        """
        key = plain_key(key)
        found = self._find(key)
        model = self._fresh(key) if found is None else found
        n_before = model.n_rows
        _learn(model, x, y)
        if self.warm_start and model.n_rows > n_before:
            self._share_hyperparameters(key, model)
        if found is None:
            # After learning: a first row that is rejected makes no model.
            self.add(key, model)

    def predict_one(self, key: Any, x: Mapping[Any, Any], with_dist: bool = False) -> Any:
        """Predict the targets of one row; an unknown key gives what a model without rows gives, ``{}``."""
        model = self._find_or_make(key)
        if not isinstance(model, MOMoGPRegressor):
            raise TypeError(f"the model of {key!r} forecasts series: use forecast")
        return model.predict_one(x, with_dist)

    def score_one(self, key: Any, x: Mapping[Any, Any]) -> float:
        """Score one row; an unknown key gives what a monitor without rows gives, 0."""
        model = self._find_or_make(key)
        if not isinstance(model, MOMoGPMonitor):
            raise TypeError(f"the model of {key!r} is not a monitor: use a template of MOMoGPMonitor")
        return model.score_one(x)

    def forecast(
        self,
        key: Any,
        horizon: int | str,
        xs: Iterable[Mapping[Any, Any] | None] | None = None,
        with_dist: bool = False,
    ) -> Any:
        """Forecast the next rows of a key; one without values so far gives ``[]``."""
        model = self._find_or_make(key)
        if isinstance(model, MOMoGPRegressor):
            raise TypeError(f"the model of {key!r} predicts rows from their inputs: use predict_one")
        if isinstance(model, MOMoGPMonitor):
            raise TypeError(f"the model of {key!r} watches rows: use score_one")
        return model.forecast(horizon, xs, with_dist) if model.series else []

    def model(self, key: Any) -> Any:
        """The model of a key. The next call may move it out of memory: changes made to it after that are lost."""
        found = self._find(plain_key(key))
        if found is None:
            raise KeyError(key)
        return found

    def peek(self, key: Any) -> Any:
        """The model of a key, None if there is none; as `model`."""
        return self._find(plain_key(key))

    def add(self, key: Any, model: Model) -> None:
        """Add an existing model under a new key."""
        key = plain_key(key)
        if key in self._keys:
            raise ValueError(f"a model of {key!r} already exists")
        self._keys.add(key)
        self._n_side += is_side_key(key)
        self._touch(key, _LoadedModel(model))

    def monitor(self, key: Any, template: MOMoGPMonitor) -> MOMoGPMonitor:
        """The monitor beside the model of a key, at first a copy of the template.

        It is kept in memory, store and commits like the models, and is not one of the keys.
        """
        beside = side_key(plain_key(key))
        found = self._find(beside)
        if found is None:
            found = template.clone()
            self.add(beside, found)
        assert isinstance(found, MOMoGPMonitor)
        found.set_false_alarms(template.false_alarms)
        return found

    def _find_or_make(self, key: Any) -> Model:
        """The model of a key; for an unknown one a model without rows, which is not kept."""
        key = plain_key(key)
        return self._find(key) or self._fresh(key)

    # ------------------------------------------------------------------ other processes

    def know(self, keys: Iterable[Key]) -> None:
        """Note that there are models of these keys, in the store or in a process that learns their rows."""
        fresh = set(keys) - self._keys
        self._keys |= fresh
        self._n_side += sum(map(is_side_key, fresh))

    def lend(self, key: Key) -> dict[Key, dict[int, bytes]]:
        """The blocks of the model of a key in the store, and of the monitor beside it, for a process that uses them."""
        store = self.store
        return (
            {} if store is None else {name: store.blocks(name) for name in (key, side_key(key)) if name in self._keys}
        )

    def take_back(self, key: Key, parts: Parts) -> None:
        """Write a model that another process has changed, to be part of the next commit."""
        assert self.store is not None
        self.store.put(key, parts)

    def changed(self) -> Iterator[tuple[Key, Parts]]:
        """Models that have changed since this was called last, or have been put into the store, taken apart."""
        for key in sorted(self._changed, key=repr):
            self._changed.remove(key)
            yield key, Parts.of(self._live[key].model)

    # ------------------------------------------------------------------ keys

    @property
    def loaded(self) -> frozenset[Key]:
        """Keys of the models that are in memory."""
        return frozenset(self._live)

    def keys(self) -> list[Key]:
        """All keys, sorted by their `repr`."""
        return sorted((key for key in self._keys if not is_side_key(key)), key=repr)

    def __iter__(self) -> Iterator[Key]:
        return iter(self.keys())

    def __len__(self) -> int:
        """Return the number of keys."""
        return len(self._keys) - self._n_side

    def __contains__(self, key: object) -> bool:
        """Whether a key has a model."""
        return plain_key(key) in self._keys

    # ------------------------------------------------------------------ memory

    @property
    def n_live(self) -> int:
        """Models that are loaded and ready for use."""
        return len(self._live)

    @property
    def nbytes(self) -> int:
        """Bytes of the loaded models, as last looked up; sizes change slowly and are not looked up at every row."""
        return self._live_bytes

    @property
    def packed_bytes(self) -> int:
        """Bytes of the models that are compressed in memory."""
        return self._packed_bytes

    def _find(self, key: Key) -> Model | None:
        """The model of a key, loaded if it has to be, for a call that may change it."""
        live = self._live.get(key)
        if live is None:
            if key in self._packed:
                live = _LoadedModel(self._packed[key].model())
                self._packed_bytes -= self._packed.pop(key).nbytes
            elif key in self._keys:
                if self.store is None:
                    raise RuntimeError(
                        f"the model of {key!r} was in a worker of the run: with a store, it would be here"
                    )
                live = _LoadedModel(self.store.load(key))
            else:
                return None
        self._touch(key, live)
        return live.model

    def _touch(self, key: Key, live: _LoadedModel) -> None:
        """Note that a model is in use, and look up its size now and then; move others out if memory is short."""
        self._live[key] = live
        if key in self._unwritten:
            self._write_unwritten(key)
        self._live.move_to_end(key)
        self._changed.add(key)
        live.left -= 1
        if live.left > 0:
            return
        nbytes = live.model.nbytes + MODEL_BYTES
        self._live_bytes += nbytes - live.nbytes
        live.nbytes = nbytes
        # In proportion to its rows: the more there are, the more a look costs, and the less the size changes.
        live.left = live.wait = min(2 * live.wait, max(SIZE_EVERY, live.model.n_rows // 32))
        while len(self._live) > 1 and self._live_bytes + self._packed_bytes > self.memory_budget:
            self._unload_oldest()

    def _unload_oldest(self) -> None:
        """Move the model that was used least recently out of memory."""
        key, live = next(iter(self._live.items()))
        self.is_short_of_memory = True
        # Before it leaves: a model that cannot be saved must not be lost.
        if self.store is None:
            self._packed[key] = packed = Packed(live.model)
            self._packed_bytes += packed.nbytes
        elif key in self._unwritten:
            self._write_unwritten(key)
        elif key in self._changed:
            # It must not get into the commit that is under way, which is about earlier rows.
            self.finish_commit()
            self.store.put(key, live.model)
            self._changed.remove(key)
        del self._live[key]
        self._live_bytes -= live.nbytes

    # ------------------------------------------------------------------ commits

    def commit(
        self,
        source: Position | None = None,
        outputs: Iterable[Output] = (),
        dead: Iterable[DeadLetter] = (),
        alarms: Iterable[Output] = (),
    ) -> None:
        """Write all models that have changed, with the position of the source; see `Store.commit`.

        If it fails and no model has left memory since the last commit, the fleet is as it was, and the call may be
        repeated. Else the rows since then are lost: open the store again, and resume from its last commit.
        """
        if self.store is None:
            raise ValueError("the fleet has no store to commit to")
        self.finish_commit()
        changed = {key: self._live[key].model for key in sorted(self._changed, key=repr)}
        self.store.commit(changed, source, outputs, dead, self._notes(), alarms)
        self._changed.clear()
        self.is_short_of_memory = False

    def begin_commit(
        self,
        source: Position | None = None,
        outputs: Iterable[Output] = (),
        dead: Iterable[DeadLetter] = (),
        alarms: Iterable[Output] = (),
    ) -> None:
        """Begin a commit of all models as they are now; `continue_commit` writes them, some at a time.

        Rows may be learnt meanwhile: a model that has not been written yet is written before it is used. One commit of
        hundreds of forecasters takes seconds, for which no row need wait that way.
        """
        if self.store is None:
            raise ValueError("the fleet has no store to commit to")
        self.finish_commit()
        self.store.stage(source, outputs, dead, self._notes(), alarms)
        self._unwritten = dict.fromkeys(sorted(self._changed, key=repr))
        self._changed.clear()
        self._is_committing, self.is_short_of_memory = True, False
        self.commit_seconds = 0.0

    def continue_commit(self, seconds: float) -> bool:
        """Write models of the commit that was begun, for so long; whether it is complete."""
        until = time.monotonic() + seconds
        while self._unwritten:
            if time.monotonic() >= until:
                return False
            self._write_unwritten(next(iter(self._unwritten)))
        if self._is_committing:
            assert self.store is not None
            self._is_committing = False
            began = time.monotonic()
            self.store.commit()
            self.commit_seconds += time.monotonic() - began
        return True

    def finish_commit(self) -> None:
        """Write the rest of a commit that was begun."""
        self.continue_commit(math.inf)

    def _write_unwritten(self, key: Key) -> None:
        """Write a model as it was when the commit began."""
        assert self.store is not None
        began = time.monotonic()
        self.store.put(key, self._live[key].model)
        self.commit_seconds += time.monotonic() - began
        del self._unwritten[key]

    def close(self) -> None:
        """Drop all models and close the store; rows learnt since the last commit are lost."""
        self._live.clear()
        self._packed.clear()
        self._changed.clear()
        self._unwritten.clear()
        self._is_committing = False
        self._live_bytes = self._packed_bytes = 0
        if self.store is not None:
            self.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ------------------------------------------------------------------ new models

    def _fresh(self, key: Key) -> Model:
        if not callable(self.template):
            model: Model = self.template.clone()
            return model
        return self.template(key)

    def _share_hyperparameters(self, key: Key, model: Model) -> None:
        """Start a model of one row from the hyper-parameters of others; keep those of a model with enough rows."""
        n_rows = model.n_rows
        if not isinstance(model, MOMoGPRegressor) or not (n_rows == 1 or _is_donor(n_rows)):
            return
        experts = model.hyperparameters
        if not experts:
            return
        if n_rows > 1:
            noise = median(expert["noise"] for expert in experts)
            self._donors[key] = _medians(expert["lengthscales"] for expert in experts), noise
            self._donors.move_to_end(key)
            if len(self._donors) > N_DONORS:
                self._donors.popitem(last=False)
        elif self._donors:
            names = {name for expert in experts for name in expert["lengthscales"]}
            found = _medians(lengthscales for lengthscales, _ in self._donors.values())
            noise = median(noise for _, noise in self._donors.values())
            model.set_hyperparameters({name: found[name] for name in names & found.keys()}, noise)

    def _notes(self) -> dict[str, Any]:
        """Hyper-parameters for warm starts, and `about`, as plain data."""
        return {
            "about": self.about,
            "kin": [
                [Vocabulary([key]).state(), Vocabulary(lengths).state(), np.array([*lengths.values(), noise])]
                for key, (lengths, noise) in self._donors.items()
            ],
        }

    def _read_notes(self, notes: Mapping[str, Any]) -> None:
        check_fleet(notes)
        self.about = dict(notes.get("about", {}))
        for key, names, values in notes.get("kin", []):
            *lengths, noise = values.tolist()
            lengthscales = dict(zip(Vocabulary.from_state(names).keys, lengths, strict=True))
            self._donors[Vocabulary.from_state(key).keys[0]] = lengthscales, noise  # type: ignore[index]


def _learn(model: Model, x: Mapping[Any, Any] | None, y: Any) -> None:
    if isinstance(model, MOMoGPRegressor):
        model.learn_one({} if x is None else x, y)
    elif isinstance(model, MOMoGPMonitor):
        model.learn_one({} if x is None else x)
    else:
        model.learn_one(y, x)


def _medians(found: Iterable[Mapping[Any, float]]) -> dict[Any, float]:
    """Median lengthscale of each input over the models that have it, without values that cannot be set."""
    values: dict[Any, list[float]] = {}
    for lengthscales in found:
        for name, value in lengthscales.items():
            if LEAST_PARAMETER <= value <= 1.0 / LEAST_PARAMETER:
                values.setdefault(name, []).append(value)
    return {name: median(values[name]) for name in values}


def _is_donor(n_rows: int) -> bool:
    """Whether a model with this many rows passes on its hyper-parameters: at 200, 400, 800, and so on."""
    times, rest = divmod(n_rows, DONOR_ROWS)
    return not rest and times.bit_count() == 1
