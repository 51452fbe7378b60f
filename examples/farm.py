"""A farm of turbines: a model for each, in one file, through interruptions and on little memory.

    python examples/farm.py

Twelve simulated turbines send a row each in turn. Every row is predicted, then learnt, by the model of its turbine.
There is memory for a few of the models only: the others stay on disk, in the store. The run is interrupted three times,
without warning and between two commits, and resumes from the position of the last commit. In the end every model has
learnt every row once, and predicts the same as a model that was never interrupted and always in memory.
"""

from __future__ import annotations

import tempfile
from itertools import islice
from pathlib import Path

from momostream import MOMoGPRegressor
from momostream.datasets import WindFarm
from momostream.fleet import Fleet
from momostream.store import Position, Store

N_TURBINES, N_ROWS, COMMIT_EVERY = 12, 2400, 200
INTERRUPTED_AT = (510, 1333, 2000)


def farm():
    """The same rows every time: what a file or a broker would send again."""
    return WindFarm(N_TURBINES, seed=0, rate=1 / 60).take(N_ROWS)


def learn(path: Path, until: int) -> tuple[int, int]:
    """Resume from the last commit; returns rows learnt, and models in memory at the end."""
    template = MOMoGPRegressor(clock="time", max_points=128, seed=0)
    with Store(path) as store, Fleet(template, store=store, memory_budget=1_500_000) as fleet:
        position = store.source("farm") or Position("farm", offset=0, number=0)
        n = position.number
        for key, x, y in islice(farm(), n, until):
            fleet.predict_one(key, x)
            fleet.learn_one(key, x, y)
            n += 1
            if n % COMMIT_EVERY == 0:
                fleet.commit(Position("farm", offset=n, number=n))
        # Rows since the last commit are lost with the process: models and position return to that commit together.
        return n - position.number, fleet.n_live


def main() -> None:
    """Run the farm in pieces and in one, and compare."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "farm.db"
        for until in (*INTERRUPTED_AT, N_ROWS):
            n_learnt, n_live = learn(path, until)
            with Store(path, read_only=True) as store:
                committed = store.source("farm").number
            print(f"learnt {n_learnt:5,} rows, {n_live} models in memory; the last commit is after row {committed:,}")

        alone = MOMoGPRegressor(clock="time", max_points=128, seed=0)
        for key, x, y in farm():
            if key == "T07":
                alone.predict_one(x)
                alone.learn_one(x, y)
                last = x
        with Store(path, read_only=True) as store:
            again = store.load("T07")
            print(f"rows of all models: {sum(store.rows().values()):,} of {N_ROWS:,}")
            print(f"T07 as if it had been alone: {again.predict_one(last) == alone.predict_one(last)}")
            print(f"{path.stat().st_size / N_TURBINES / 1000:.0f} kB for each turbine of {again.n_rows} rows")


if __name__ == "__main__":
    main()
