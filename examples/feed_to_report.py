"""From a CSV file to forecasts in a file, a store and a report: what ``momostream run`` does, from Python.

The file is written first, by a simulated turbine: every minute a row, some readings missing, some rows lost, and one
line that is not a row at all. A run forecasts half an hour after every fifth row. It stops half way, as if somebody had
switched the machine off, and resumes from its store; the forecasts are those of a run without a stop. Run it with
``python examples/feed_to_report.py``; all files go into the folder given as its argument, by default
``momostream-feed_to_report`` in the current directory.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from momostream.datasets import WindTurbine
from momostream.feeds import Feed
from momostream.feeds.outputs import PredictionLines, Sink
from momostream.fleet import Fleet
from momostream.report import write_report
from momostream.runs.plan import Plan, make_model
from momostream.runs.run import ONLY, Channel, Run
from momostream.store import Store

N_ROWS, STOP = 1300, 700
PLAN = Plan(targets=("wind_speed", "power", "flap_1"), time="time", horizon=30, every=5)


def write_feed(path: Path) -> None:
    """Readings as a data logger leaves them."""
    rows = WindTurbine(seed=0, rate=1 / 60, dropouts=0.02).frame(N_ROWS)[list(PLAN.targets)]
    lost = rows.index[400:430]
    lines = rows.drop(lost).round(2).to_csv().splitlines()
    lines[1000] = "2025-01-01 17:0#~~ checksum error"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def run_once(feed_path: Path, forecasts: Path, stored: Path, limit: int | None = None) -> Run:
    """Start, or resume from the store; until the feed ends or ``limit`` rows were taken."""
    with (
        Feed(feed_path, PLAN.columns, PLAN.time) as feed,
        Fleet(make_model(PLAN), store=Store(stored)) as fleet,
    ):
        run = Run(feed, fleet, PLAN, bad_rows="skip", on_bad=print)
        if run.position is not None:
            print(f"resuming after row {run.position.number:,}")
        run.lines = PredictionLines(PLAN.targets, stepwise=True)
        with Sink(forecasts, run.lines.header, run.written("outputs")) as sink:
            run.predictions = Channel("outputs", sink)
            run.run(limit)
    print(f"{run.n_rows:,} rows learnt, {run.track.n_scored:,} forecasts scored, bad rows skipped: {run.n_bad}")
    return run


def main() -> None:
    """Write a feed, run over it in two parts and in one, compare, report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", default=Path("momostream-feed_to_report"), help="for all files")
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    feed, names = folder / "turbine.csv", ("forecasts.csv", "run.db")
    forecasts, stored = (folder / name for name in names)
    # Otherwise the run would resume from the store of an earlier run of this example.
    stored.unlink(missing_ok=True)
    write_feed(feed)

    run_once(feed, forecasts, stored, limit=STOP)
    run = run_once(feed, forecasts, stored)
    print(f"\nScores of all forecasts\n{run.track.summary.round(2).to_string()}\n")

    once = [folder / f"once-{name}" for name in names]
    once[1].unlink(missing_ok=True)
    run_once(feed, *once)
    print(f"The same forecasts without a stop: {forecasts.read_bytes() == once[0].read_bytes()}\n")
    print("The newest forecast, as it was written")
    lines = forecasts.read_text(encoding="utf-8").splitlines()
    print("\n".join([lines[0], *lines[-PLAN.horizon :: 10]]))

    with Store(stored, read_only=True) as store:
        model = store.load(ONLY)
    report = write_report(
        folder / "report.html",
        run.track,
        model,
        forecast=run.predicted.prediction,
        history=run.history,
        title="Forecasts of turbine.csv",
        facts={"Bad rows": run.n_bad},
    )
    print(f"\nThe report: {report}")


if __name__ == "__main__":
    main()
