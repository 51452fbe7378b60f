"""Follow a wind turbine as its readings come in: predict, compare, learn, one row after the other.

A small simulated turbine stands in for a feed. Every ten seconds it reports wind, blade pitch and air density, and a
moment later the power, the load on the tower and the speed of the rotor. The model predicts the three before it sees
them. Run it with ``python examples/streaming.py``; with ``--save FOLDER`` the model is kept there.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np

from momostream import MOMoGPRegressor, load
from momostream.metrics import CRPS, NLPD, Coverage

TARGETS = ("power", "load", "rotor")
N_ROWS, STRETCH = 1500, 250

Row = dict[str, float]


def turbine(n_rows: int, seed: int = 0) -> Iterator[tuple[Row, Row]]:
    """Inputs and targets of one row after the other."""
    rng = np.random.default_rng(seed)
    wind, density, gust, rotor = 9.0, 1.22, 0.0, 9.0
    for _ in range(n_rows):
        wind += 0.05 * (9.0 - wind) + 0.4 * rng.normal()
        density += 0.02 * (1.22 - density) + 0.004 * rng.normal()
        # What the anemometer does not see moves all targets together.
        gust = 0.7 * gust + 0.35 * rng.normal()
        felt = max(wind + gust, 1.0)
        pitch = 4.5 * np.sqrt(max(wind - 11.4, 0.0))
        rotor += 0.6 * (min(1.06 * felt, 12.1) - rotor)
        power = 5000.0 * min(density / 1.225 * (felt / 11.4) ** 3, 1.0)
        load = 0.6 * density * felt**2 * np.exp(-0.11 * pitch)
        noise = rng.normal(size=3)
        yield (
            {"wind": wind, "pitch": pitch, "density": density},
            {"power": power + 20 * noise[0], "load": load + noise[1], "rotor": rotor + 0.05 * noise[2]},
        )


def main() -> None:
    """Predict then learn; then look at one law more closely, and at a model from a file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--save", type=Path, metavar="FOLDER", help="keep the model in this folder")
    folder = parser.parse_args().save

    feed = turbine(N_ROWS + 1)
    model = MOMoGPRegressor(seed=0)
    print("Predict, then learn: scores of what was predicted before it was seen")
    print(f"{'rows':>13}{'log density':>13}" + "".join(f"{'error ' + name:>14}" for name in TARGETS) + "  inside 90 %")
    scores = NLPD(), CRPS(), Coverage(0.9)
    started = time.perf_counter()
    for number, (x, y) in enumerate(islice(feed, N_ROWS), start=1):
        law = model.predict_one(x, with_dist=True)
        for score in scores:
            score.update(y, law)
        model.learn_one(x, y)
        if number % STRETCH == 0:
            errors = "".join(f"{scores[1].each[name]:14.2f}" for name in TARGETS)
            rows = f"{number - STRETCH + 1}-{number}"
            print(f"{rows:>13}{-scores[0].get():13.2f}{errors}{scores[2].get():13.0%}")
            scores = NLPD(), CRPS(), Coverage(0.9)
    print(f"{1000 * (time.perf_counter() - started) / N_ROWS:.1f} ms per row, scores included\n")

    x, y = next(feed)
    law = model.predict_one(x, with_dist=True)
    print(f"The next row: wind {x['wind']:.1f} m/s")
    print(law)
    for name, (low, high) in law.interval(0.9).items():
        print(f"  {name:>5} between {low:.4g} and {high:.4g} nine times out of ten; it was {y[name]:.4g}")
    print(f"How strange that is, from 0 to 1: {model.score_one(x, y):.2f}")
    broken = {**y, "power": 0.5 * y["power"]}
    print(f"With half of the power:           {model.score_one(x, broken):.2f}\n")

    print("Once the power is known, the others are known better: they feel the same gusts")
    print(law.condition({"power": y["power"]}))

    print("\nWhy? Share of each expert, and the stored row that resembles this one most")
    why = model.explain_one(x, n_neighbours=1)
    for expert, shares in why["experts"].items():
        print(f"  {expert:>15} " + "".join(f"{name:>8} {shares[name]:4.2f}" for name in TARGETS))
    nearest = why["neighbours"][0]
    print(f"  row {nearest['row']}, wind {nearest['x']['wind']:.1f} m/s, power {nearest['y']['power']:.0f} kW\n")

    print(model.describe())
    with tempfile.TemporaryDirectory() as scratch:
        path = (folder or Path(scratch)) / "turbine.momo"
        path.parent.mkdir(parents=True, exist_ok=True)
        model.save(path)
        again = load(path)
        print(f"\nSaved in {path.stat().st_size / 1000:.0f} kB; the loaded model goes on with the same floats:")
        print(f"  {again.predict_one(x) == model.predict_one(x)}")


if __name__ == "__main__":
    main()
