"""Follow a wind turbine as its readings come in: predict, compare, learn, one row after the other.

A simulated turbine stands in for a feed. Every ten seconds it reports eight readings that it takes anyway, such as
wind, pitch and power, and a moment later the bending moments at the roots of its three blades, flapwise and edgewise.
The model predicts the six before it sees them. Run it with ``python examples/streaming.py``; it saves the model into
the folder given as its argument, by default ``momostream-streaming`` in the current directory.
"""

from __future__ import annotations

import argparse
import time
from itertools import islice
from pathlib import Path

from momostream import MOMoGPRegressor, load
from momostream.datasets import WindTurbine
from momostream.metrics import CRPS, NLPD, Coverage

TARGETS = WindTurbine.TARGETS
N_ROWS, STRETCH = 1500, 250


def main() -> None:
    """Predict then learn; then look at one distribution more closely, and at a model from a file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", default=Path("momostream-streaming"), help="for the model")
    folder = parser.parse_args().folder

    feed = iter(WindTurbine(seed=0, rate=0.1))
    model = MOMoGPRegressor(clock="time", seed=0)
    print("Predict, then learn: scores of what was predicted before it was seen, errors (CRPS) in kN m")
    print(f"{'rows':>10}{'log density':>13}" + "".join(f"{name:>8}" for name in TARGETS) + "  inside 90 %")
    scores = NLPD(), CRPS(), Coverage(0.9)
    started = time.perf_counter()
    for number, (x, y) in enumerate(islice(feed, N_ROWS), start=1):
        distribution = model.predict_one(x, with_dist=True)
        for score in scores:
            score.update(y, distribution)
        model.learn_one(x, y)
        if number % STRETCH == 0:
            errors = "".join(f"{scores[1].each[name]:8.1f}" for name in TARGETS)
            rows = f"{number - STRETCH + 1}-{number}"
            print(f"{rows:>10}{-scores[0].get():13.2f}{errors}{scores[2].get():13.0%}")
            scores = NLPD(), CRPS(), Coverage(0.9)
    print(f"{1000 * (time.perf_counter() - started) / N_ROWS:.1f} ms per row, scores included\n")

    x, y = next(feed)
    distribution = model.predict_one(x, with_dist=True)
    print(f"The next row: wind {x['wind_speed']:.1f} m/s, power {x['power']:.0f} kW")
    print(distribution)
    for name, (low, high) in distribution.interval(0.9).items():
        print(f"  {name} between {low:.0f} and {high:.0f} nine times out of ten; it was {y[name]:.0f}")
    print(f"Its anomaly score, from 0 to 1:             {model.score_one(x, y):.4f}")
    broken = {**y, "flap_1": 0.8 * y["flap_1"]}
    print(f"With a gauge that shows a fifth too little: {model.score_one(x, broken):.4f}\n")

    print("Once one blade is known, the others are known better: they feel the same gusts")
    print(distribution.condition({"flap_1": y["flap_1"]}))

    print("\nReasons: share of each expert, and the stored row that resembles this one most")
    why = model.explain_one(x, n_neighbours=1)
    for expert, shares in why["experts"].items():
        print(f"  {expert:>15} " + "".join(f"{name:>8} {shares[name]:4.2f}" for name in TARGETS))
    nearest = why["neighbours"][0]
    print(
        f"  row {nearest['row']}, wind {nearest['x']['wind_speed']:.1f} m/s, flap_1 {nearest['y']['flap_1']:.0f} kN m\n"
    )

    print(model.describe())
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "turbine.momo"
    model.save(path)
    again = load(path)
    print(f"\nSaved in {path}, {path.stat().st_size / 1000:.0f} kB; the loaded model predicts the same floats:")
    print(f"  {again.predict_one(x) == model.predict_one(x)}")


if __name__ == "__main__":
    main()
