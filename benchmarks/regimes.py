"""Whether intervals hold when a feed changes its ways, with conformal quantiles and without.

    python -m benchmarks.regimes [--rows 10000] [--quick]

Two series, six steps ahead, the defaults otherwise. After half of the rows the noise is three times as large, the feed
forgets faster and its level is another. Coverage of the central 50, 90 and 99 % in blocks of 2,000 rows, from the
forecasts of every fourth row; the first 600 rows are not looked at. The table goes to ``results/regimes.md``.
A full run takes about a minute.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness import about, origin, table, write_results
from momostream import MOMoGPForecaster

Array = NDArray[np.float64]

HORIZON, EVERY, BLOCK, UNSCORED = 6, 4, 2000, 600
LEVELS, WITHIN = (0.5, 0.9, 0.99), 0.02


def feed(n_rows: int, seed: int = 0) -> Array:
    """Two series with a change of regime after half of the rows."""
    rng = np.random.default_rng(seed)
    y, rows = np.zeros(2), np.empty((n_rows, 2))
    for t in range(n_rows):
        late = t >= n_rows // 2
        keep, size, level = (0.7, 0.9, 3.0) if late else (0.95, 0.3, 0.0)
        shared = rng.standard_t(6)
        y = level + keep * (y - level) + size * (0.6 * shared + 0.8 * rng.standard_t(6, 2))
        rows[t] = y
    return rows


def inside(Y: Array, conformal: bool) -> Iterator[tuple[int, Array]]:
    """Row and, for each level, the share of the values within the interval forecast there."""
    model = MOMoGPForecaster(horizon=HORIZON, conformal=conformal, seed=0)
    names = ["a", "b"]
    for t, y in enumerate(Y.tolist()):
        model.learn_one(dict(zip(names, y, strict=True)))
        if t >= UNSCORED and t % EVERY == 0 and t + HORIZON < len(Y):
            forecast, came = model.forecast(HORIZON, with_dist=True), Y[t + 1 : t + 1 + HORIZON]
            shares = np.empty(len(LEVELS))
            for number, level in enumerate(LEVELS):
                sides = forecast.interval(level)
                lower, upper = (np.column_stack([sides[name, side] for name in names]) for side in ("lower", "upper"))
                shares[number] = ((came >= lower) & (came <= upper)).mean()
            yield t, shares


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--quick", action="store_true", help="1,200 rows; nothing is kept")
    options = parser.parse_args()
    n_rows = 1200 if options.quick else options.rows
    Y = feed(n_rows)
    lines: list[list[str]] = []
    worst: dict[str, float] = {}
    for name, conformal in (("distribution", False), ("conformal", True)):
        found = list(inside(Y, conformal))
        rows, shares = np.array([row for row, _ in found]), np.array([share for _, share in found])
        for start in range(0, n_rows, BLOCK):
            part = shares[(rows >= start) & (rows < start + BLOCK)]
            if len(part):
                lines.append(
                    [name, f"{start:,} to {min(start + BLOCK, n_rows):,}", *(f"{s:.3f}" for s in part.mean(axis=0))]
                )
                distance = float(np.abs(part.mean(axis=0) - LEVELS).max())
                worst[name] = max(worst.get(name, 0.0), distance)
    verdicts = [
        f"- {'PASS' if distance <= WITHIN else 'MISS'}: {name}, coverage within {WITHIN} in every block: {distance:.3f}"
        for name, distance in worst.items()
    ]
    header = ["quantiles of", "rows", *(f"{level:.0%}" for level in LEVELS)]
    parts = ["# A change of regime", origin("regimes", [about()]), f"The change comes at row {n_rows // 2:,}."]
    text = "\n\n".join([*parts, table(header, lines), "\n".join(verdicts)])
    print(text)
    if not options.quick:
        write_results("regimes", text)


if __name__ == "__main__":
    main()
