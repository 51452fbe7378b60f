"""A history of calls on one estimator and its twin; which calls these are is said in `gauntlet_histories`."""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from benchmarks.tools.gauntlet_twins import TWINS, HistoryError, Shelf, check, checksum, numbers, plain

__all__ = ["LONG", "SHORT", "History", "Tempo", "Values"]


class Tempo(NamedTuple):
    """How often what is done in a history."""

    #: Chances of a new twin and of a bad call before each call, and of comparing the states around a pure one.
    twin: float
    bad: float
    pure: float
    #: Calls between two comparisons of states.
    compare: int
    #: Calls after which values change their nature; None: never.
    change: int | None


SHORT = Tempo(twin=0.05, bad=0.12, pure=0.3, compare=8, change=None)
LONG = Tempo(twin=0.004, bad=0.03, pure=0.003, compare=500, change=400)
# Of lives: what values may be like in turn. Where all are tame, models have something to learn.
TEMPERS = (("tame", "waves"), ("waves", "wild", "constant", "offset"), ("tame", "wild", "hostile", "waves", "offset"))


class Values:
    """Numbers of a feed that is tame, wild or hostile."""

    def __init__(self, random: Random) -> None:
        self.random, self.n_given, self.temper = random, 0, ("tame",)
        self.mood = random.choices(["tame", "wild", "hostile", "offset", "constant"], [4, 3, 3, 1, 1])[0]
        self.offset = random.choice([-1.0, 1.0]) * 10.0 ** random.uniform(0, 29)

    def change(self) -> None:
        """Values of another nature from here on."""
        self.mood = self.random.choice(self.temper)

    def __call__(self) -> Any:
        """The next number, or one of the ways to say that there is none."""
        r = self.random
        chance = r.random()
        if chance < 0.08:
            return r.choice([None, math.nan, pd.NA, 0, True, np.float32(1.5), np.int64(7), -0.0, 5e-324])
        if self.mood == "hostile" and chance < 0.3:
            return r.choice([-1.0, 1.0]) * r.choice([1e30, 9.9e29, 1e25, 1e-50, 1e-320, 10.0 ** r.uniform(-50, 30)])
        if self.mood == "wild" and chance < 0.2:
            return r.choice([-1.0, 1.0]) * 10.0 ** r.uniform(-30, 29.9)
        if self.mood == "offset":
            return self.offset * (1.0 + 1e-12 * r.gauss(0.0, 1.0))
        if self.mood == "constant" and chance < 0.9:
            return 8.0
        if self.mood == "waves":
            self.n_given += 1
            return 8.0 + 3.0 * math.sin(self.n_given / 40.0) + 0.1 * r.gauss(0.0, 1.0)
        return r.choice([r.gauss(8.0, 2.0), r.gauss(8.0, 2.0), float(r.randrange(3))])


class History:
    """One estimator, its twin if it has one, and a source of calls for both."""

    #: Calls by name, with how often they are made.
    calls: dict[str, float]
    #: The same for lives, in which many rows are learnt; those of `calls` that are not named are not made.
    life_calls: dict[str, float]
    #: Calls after which the state must be what it was.
    pure: set[str]
    #: Ways in which a twin is made; in lives, by a store, too, if stores take such an estimator.
    ways = TWINS
    is_stored = True

    def __init__(self, seed: int, n_calls: int, tempo: Tempo = SHORT) -> None:
        self.random, self.n_calls, self.tempo = Random(seed), n_calls, tempo
        self.is_life = tempo.change is not None
        self.value = Values(self.random)
        if self.is_life:
            self.value.temper = self.random.choice(TEMPERS)
            self.value.change()
        self.model = self.make()
        self.shelf = Shelf()
        if self.is_life and self.is_stored:
            self.ways = {**self.ways, "store": self.shelf}
        self.twin: Any = None
        self.way = ""
        self.n_done = 0
        self.last = ""

    def make(self) -> Any:
        """The estimator, with settings drawn from the seed."""
        raise NotImplementedError

    def run(self) -> int:
        """Make all calls; returns their number."""
        try:
            while self.n_done < self.n_calls:
                self.step()
        finally:
            self.shelf.close()
        return self.n_done

    def step(self) -> None:
        """One call, before it perhaps a new twin, after it perhaps a comparison of states."""
        r, tempo = self.random, self.tempo
        if tempo.change and self.n_done % tempo.change == tempo.change - 1:
            self.value.change()
        if r.random() < tempo.twin:
            self.make_twin()
        if r.random() < tempo.bad:
            self.bad_call()
        else:
            self.good_call()
        self.n_done += 1
        if self.twin is not None and (self.n_done % tempo.compare == 0 or self.n_done == self.n_calls):
            check(checksum(self.twin) == checksum(self.model), f"the state of the twin by {self.way} differs")

    def make_twin(self) -> None:
        """A twin of the estimator; in a life, often of its last twin, which has left memory many times."""
        self.way = self.random.choice(list(self.ways))
        self.last = f"twin by {self.way}"
        is_again = self.is_life and self.twin is not None and self.random.random() < 0.8
        self.twin = self.ways[self.way](self.twin if is_again else self.model)
        check(checksum(self.twin) == checksum(self.model), f"a twin by {self.way} differs at once")

    def good_call(self) -> None:
        """A call that must not fail; the twin gives the same answer."""
        calls = self.life_calls if self.is_life else self.calls
        name = self.random.choices(list(calls), list(calls.values()))[0]
        self.last = name
        call = getattr(self, name)()
        is_pure = name in self.pure and self.random.random() < self.tempo.pure
        before = checksum(self.model) if is_pure else ""
        answer = plain(call(self.model))
        if is_pure:
            check(checksum(self.model) == before, f"{name} changed the state")
        if name in self.pure:
            check(not any(map(math.isnan, numbers(answer))), f"{name} gave NaN: {answer}")
        if self.twin is not None:
            other = plain(call(self.twin))
            check(repr(other) == repr(answer), f"{name} of the twin by {self.way} gave {other}, not {answer}")

    def bad_call(self) -> None:
        """A call that must fail in words, and change nothing."""
        name, call = self.bad()
        self.last = f"bad {name}"
        # In a life the twin, which gets no bad calls, shows whether they change anything.
        is_compared = not self.is_life or self.random.random() < self.tempo.pure
        before = checksum(self.model) if is_compared else ""
        try:
            call()
        except (TypeError, ValueError, KeyError) as error:
            check(not isinstance(error, np.linalg.LinAlgError), f"{name} ended in {error!r}")
            check(len(str(error)) > 10 and "inhomogeneous" not in str(error), f"{name} ended in {error!r}")
            is_same = not is_compared or checksum(self.model) == before
            check(is_same, f"{name} failed and changed the state")
        else:
            raise HistoryError(f"{name} accepted a bad value")

    def bad(self) -> tuple[str, Callable[[], Any]]:
        """A call that must fail."""
        raise NotImplementedError
