"""Covariances: whether `cov` and `std` of predictions are those of their samples, on distributions from real feeds.

    python -m benchmarks.covariances [--samples 200000] [--quick]

From each of 14 feeds (found through ``MOMOSTREAM_DATA``, see `benchmarks.data`) come seven distributions of up to five
series, with the defaults otherwise: direct forecasts of three steps after 250, 500, 750 and 1,000 rows, a recursive one
after 400 rows, and predictions of a regressor after 250 and 500 rows; and one from each of two tables that were fitted.
Each is compared with its own samples: the correlation that differs most, and the standard deviation that differs most.
The table goes to ``results/covariances.md``. A full run takes about 2 minutes.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.data import HALVES, read
from benchmarks.harness import about, origin, table, write_results

Array = NDArray[np.float64]

N_SAMPLES, N_SERIES, HORIZON = 200_000, 5, 3
DIRECT_ROWS, RECURSIVE_ROWS, REGRESSOR_ROWS = (250, 500, 750, 1000), 400, (250, 500)
FEEDS = tuple(feed for half in HALVES.values() for feed in half)
TABLES, TABLE_ROWS = ("windturbine", "parkinsons"), 600
# Largest differences that are accepted.
CORRELATION, DEVIATION = 0.03, 0.03

NOTE = """Largest differences between a distribution and its own samples, over the distributions of a kind: of
correlations, and of standard deviations in percent. "By chance" is two standard errors of the sampled deviation that
differs most: heavy tails have few values, and the deviation of samples is itself uncertain there."""


class Agreement(NamedTuple):
    """How far a distribution is from its samples: the worst correlation and deviation, and the latter's error."""

    correlation: float
    deviation: float
    by_chance: float


def agreement(cov: Array, draws: Array) -> Agreement:
    """Compare a covariance ``(Q, Q)`` with samples ``(n, Q)``; values that never vary are left out.

    Examples
    --------
    >>> draws = np.random.default_rng(0).normal(size=(50_000, 2)) @ np.array([[1.0, 0.5], [0.0, 1.0]])
    >>> found = agreement(np.array([[1.0, 0.5], [0.5, 1.25]]), draws)
    >>> max(found) < 0.02
    True
    >>> agreement(np.array([[1.21, 0.0], [0.0, 1.25]]), draws).deviation > 0.08
    True
    """
    std = np.sqrt(np.diagonal(cov))
    moves = (std > 0.0) & (draws.std(axis=0) > 0.0)
    away = draws[:, moves] - draws[:, moves].mean(axis=0)
    found, std = away.std(axis=0), std[moves]
    wrong = np.abs(
        cov[np.ix_(moves, moves)] / np.outer(std, std) - (away.T @ away) / len(away) / np.outer(found, found)
    )
    ratios = np.abs(found / std - 1.0)
    error = 0.5 * np.sqrt(((away**4).mean(axis=0) / found**4 - 1.0) / len(away))
    worst = int(ratios.argmax())
    return Agreement(float(wrong.max()), float(ratios[worst]), 2.0 * float(error[worst]))


def rows_of(feed: str, n: int) -> tuple[list[dict[str, float]], list[dict[str, float]]]:
    """Inputs and series of the first rows, at most `N_SERIES` of the latter; what is missing is left out."""
    frame, inputs, targets = read(feed)

    def plain(names: list[str]) -> list[dict[str, float]]:
        rows = frame[names].astype(float).iloc[:n].to_dict("records")
        return [{str(name): value for name, value in row.items() if value == value} for row in rows]

    return plain(inputs), plain(targets[:N_SERIES])


def from_forecaster(feed: str, strategy: str, at: tuple[int, ...], n: int) -> Iterator[Agreement]:
    """Forecasts after some rows against their samples."""
    from momostream import MOMoGPForecaster

    X, Y = rows_of(feed, max(at))
    # A forecast of one series has steps that go together; two or more have both.
    rows = [{**x, **y} for x, y in zip(X, Y, strict=True)] if len(Y[0]) == 1 else Y
    model = MOMoGPForecaster(horizon=HORIZON, strategy=strategy, seed=0)
    for number, row in enumerate(rows, 1):
        model.learn_one(row)
        if number in at:
            forecast = model.forecast(HORIZON, with_dist=True)
            yield agreement(forecast.cov, forecast.sample(n, seed=number).reshape(n, -1))


def from_regressor(feed: str, at: tuple[int, ...], n: int) -> Iterator[Agreement]:
    """Predictions after some rows against their samples."""
    from momostream import MOMoGPRegressor

    model = MOMoGPRegressor(seed=0)
    for number, (x, y) in enumerate(zip(*rows_of(feed, max(at) + 1), strict=True)):
        if number in at:
            prediction = model.predict_one(x, with_dist=True)
            yield agreement(prediction.cov, prediction.distribution.sample(n, seed=number)[:, 0])
        model.learn_one(x, y)


def from_table(name: str, n: int) -> Iterator[Agreement]:
    """The prediction of the row after those that were fitted."""
    from momostream.sklearn import MOMoGPRegressor

    frame, inputs, targets = read(name)
    X, Y = frame[inputs].to_numpy(float), frame[targets[:N_SERIES]].to_numpy(float)
    model = MOMoGPRegressor(random_state=0).fit(X[:TABLE_ROWS], Y[:TABLE_ROWS])
    distribution = model.predict_distribution(X[TABLE_ROWS : TABLE_ROWS + 1])
    yield agreement(distribution.cov[0], distribution.sample(n, seed=0)[:, 0])


def measured(feeds: tuple[str, ...], direct: tuple[int, ...], n: int) -> dict[str, dict[str, list[Agreement]]]:
    """Agreements by kind of distribution and feed."""
    found: dict[str, dict[str, list[Agreement]]] = {}
    for feed in feeds:
        parts: dict[str, Any] = {
            "direct forecasts": from_forecaster(feed, "direct", direct, n),
            "recursive forecasts": from_forecaster(feed, "recursive", (min(RECURSIVE_ROWS, max(direct)),), n),
            "regressor": from_regressor(feed, tuple(min(at, max(direct)) for at in REGRESSOR_ROWS), n),
        }
        for kind, agreements in parts.items():
            found.setdefault(kind, {})[feed] = list(agreements)
    if feeds == FEEDS:
        found["tables"] = {name: list(from_table(name, n)) for name in TABLES}
    return found


def report(found: dict[str, dict[str, list[Agreement]]], n: int) -> str:
    """A line for each kind and feed, and what was asked for."""
    lines, every = [], [one for by_feed in found.values() for ones in by_feed.values() for one in ones]
    for kind, by_feed in found.items():
        for feed, ones in by_feed.items():
            worst = max(ones, key=lambda one: one.deviation)
            lines.append(
                [kind, feed, str(len(ones)), f"{max(one.correlation for one in ones):.3f}",
                 f"{worst.deviation:.1%}", f"{worst.by_chance:.1%}"]
            )  # fmt: skip
    wrong = [one for one in every if one.correlation > CORRELATION]
    wide = [one for one in every if one.deviation > DEVIATION]
    beyond = [one for one in wide if one.deviation > DEVIATION + one.by_chance]
    n_all = len(every)
    verdicts = [
        f"- {'MISS' if wrong else 'PASS'}: correlations within {CORRELATION} on {n_all - len(wrong)} of {n_all}, "
        f"at most {max(one.correlation for one in every):.3f}",
        f"- {'MISS' if wide else 'PASS'}: deviations within {DEVIATION:.0%} on {n_all - len(wide)} of {n_all}, at most "
        f"{max(one.deviation for one in every):.1%}; {len(beyond)} are further off than chance explains",
    ]
    header = ["distribution", "feed", "distributions", "correlation off by", "deviation off by", "by chance"]
    parts = ["# Covariances", origin("covariances", [about()]), f"{n:,} samples of each distribution."]
    return "\n\n".join([*parts, table(header, lines), NOTE, "\n".join(verdicts)])


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=N_SAMPLES)
    parser.add_argument("--quick", action="store_true", help="one feed, 20,000 samples; nothing is kept")
    options = parser.parse_args()
    if options.quick:
        print(report(measured(("etth1",), (120,), 20_000), 20_000))
        return
    text = report(measured(FEEDS, DIRECT_ROWS, options.samples), options.samples)
    print(text)
    write_results("covariances", text)


if __name__ == "__main__":
    main()
