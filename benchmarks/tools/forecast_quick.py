"""One line for each case of the choosing half: momostream beside the best kept rival, while something is being changed.

    python -m benchmarks.tools.forecast_quick [feed ...] [--horizons 6 ...] [--model momostream_linear] [--every 1]

Every fifth origin is forecast and scored, in this process, and nothing is kept: some six CPU seconds a case. Feeds of
the reporting half are not accepted: `benchmarks.forecast` runs them for the results file.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from benchmarks.data import FORECASTS, half_of
from benchmarks.forecast import quick_scores, there
from benchmarks.tools.forecast_report import COMPARED, OURS, geometric
from benchmarks.tools.forecast_scores import STRIDE


def cases(feeds: list[str], horizons: list[int] | None, model: str) -> Iterator[tuple[str, int]]:
    """Cases of the choosing half, with these feeds and horizons if there are any.

    Examples
    --------
    >>> list(cases(["etth1"], [6, 24], "momostream"))
    [('etth1', 6), ('etth1', 24)]
    """
    for feed, plan in FORECASTS.items():
        if half_of(feed) == "choosing" and (not feeds or feed in feeds) and there(feed, model) is None:
            yield from ((feed, horizon) for horizon in plan.horizons if not horizons or horizon in horizons)


def main() -> None:
    """Print a line for each case, and geometric means of the ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    choosing = [feed for feed in FORECASTS if half_of(feed) == "choosing"]
    parser.add_argument("feeds", nargs="*", help="by default all of the choosing half")
    parser.add_argument("--horizons", nargs="+", type=int)
    parser.add_argument("--model", choices=OURS, default=OURS[0])
    parser.add_argument("--every", type=int, default=STRIDE, choices=(1, STRIDE), help="origins from one to the next")
    options = parser.parse_args()
    unknown = set(options.feeds) - set(choosing)
    if unknown:
        parser.error(f"{', '.join(sorted(unknown))}: not in the choosing half, which has {', '.join(choosing)}")
    found: dict[str, list[float]] = {name: [] for name in COMPARED}
    for feed, horizon in cases(options.feeds, options.horizons, options.model):
        scores = quick_scores(feed, horizon, options.model, options.every)
        cells = []
        for name, words in COMPARED.items():
            cells.append(f"{words} {scores[name]:.4f}")
            if scores["ratios"]:
                value, rival = scores["ratios"][name]
                found[name].append(value)
                cells.append(f"{value:.3f}x {rival:15}")
        shares = " / ".join(f"{share:.3f}" for share in scores["coverage"])
        worst = scores["slowest"]
        print(f"{feed:>24} {horizon:3}  {'  '.join(cells)}  {shares}", end="  ")
        print(f"{scores['us']:5.0f} us, worst {worst['ms']:.1f} ms at {worst['row']}", flush=True)
    means = {COMPARED[name]: round(geometric(values), 4) for name, values in found.items() if values}
    print(f"geometric means of ratios: {means}")


if __name__ == "__main__":
    main()
