"""Take a run to its end: progress on the terminal, signals that stop it, scores at the end."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from momostream.cli.messages import notify

if TYPE_CHECKING:
    from momostream.runs.run import Run

__all__ = ["print_scores", "run_watched", "stoppable"]

# Targets whose scores are printed at the end.
MOST_SCORES = 12


def run_watched(
    run: Run, feed: Any, limit: int | None = None, live: bool = False, quiet: bool = False, output: str = ""
) -> list[int]:
    """Run to the end and show progress on standard error; the signals that stopped it."""
    from momostream.show import progress

    total = None if limit is None else run.n_rows + limit
    with stoppable(run) as signals:
        if quiet:
            run.run(limit)
        elif live and sys.stderr.isatty():
            with progress.LiveView(feed.name, total) as view:
                run.run(limit, view.update)
                view.show(run)
        else:
            # A bar and predictions on one terminal would overwrite each other.
            alone = sys.stderr.isatty() and not (output == "-" and sys.stdout.isatty())
            with progress.Bar(feed, total) if alone else progress.PlainView(feed.name, total) as view:
                run.run(limit, view.update)
    return signals


@contextmanager
def stoppable(run: Run) -> Iterator[list[int]]:
    """Let Ctrl-C and SIGTERM end the run after the current row; a second one ends it at once. Gives those that came."""
    came: list[int] = []

    def stop(number: int, frame: Any) -> None:
        came.append(number)
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
        run.stop()

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def print_scores(run: Run) -> None:
    """Print on standard error what a run has learnt, and how good its predictions were."""
    from momostream.show.outline import counted

    bad = f", {counted(run.n_bad, 'bad row')} skipped" if run.n_bad else ""
    if run.track is None:
        notify(f"{counted(run.n_rows, 'row')} of {counted(len(run.fleet), 'key')} learnt{bad}")
        return
    notify(f"{counted(run.n_rows, 'row')} learnt, {counted(run.track.n_scored, 'prediction')} scored{bad}")
    summary = run.track.summary if run.track.n_scored else run.track.summary.iloc[:0]
    for name, scores in summary.head(MOST_SCORES).iterrows():
        if scores.isna().all():
            notify(f"  {name}: no value observed")
        else:
            notify(
                f"  {name}: RMSE {scores['rmse']:.4g} (last value {scores['naive']:.4g}), "
                f"{run.track.level:.0%} intervals cover {scores['coverage']:.1%}"
            )
    if len(summary) > MOST_SCORES:
        notify(f"  and {len(summary) - MOST_SCORES} more targets")
