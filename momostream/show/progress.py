"""Progress of a run on the terminal: rows, speed, scores, and the newest forecast drawn with its band."""

from __future__ import annotations

import sys
import time
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from momostream.feeds.source import Source
from momostream.runs.run import Run
from momostream.show.outline import change_text, counted

__all__ = ["Bar", "LiveView", "PlainView", "chart", "view_for"]

Array = NDArray[np.float64]

# Redrawing costs some milliseconds: four times a second is as good as live.
SECONDS_PER_FRAME = 0.25
SECONDS_PER_LINE = 5.0
MAX_CHARTS = 4
HEIGHT = 5
HISTORY, BAND, MEAN = "•", "░", "━"


def chart(past: Array, mean: Array, lower: Array, upper: Array, height: int = HEIGHT) -> Text:
    """Draw past values as dots, then the mean of a forecast inside its band, on ``height`` lines.

    Examples
    --------
    >>> ahead = np.array([2.0, 2.0])
    >>> print(chart(np.array([1.0, 3.0, 2.0]), ahead, ahead - 1.0, ahead + 1.0, 3))
     • ░░
      •━━
    •  ░░
    """
    known = np.concatenate([past, lower, upper])
    known = known[np.isfinite(known)]
    low, high = (known.min(), known.max()) if known.size else (0.0, 1.0)
    span = high - low or 1.0

    def line_of(values: Array) -> NDArray[np.int64]:
        """Lines count from the top; -1 if there is no value."""
        lines = np.round((high - np.nan_to_num(values, nan=high)) / span * (height - 1)).astype(np.int64)
        return np.where(np.isfinite(values), lines, -1)

    text = Text()
    dots, means, tops, bottoms = line_of(past), line_of(mean), line_of(upper), line_of(lower)
    for line in range(height):
        text.append("".join(HISTORY if dot == line else " " for dot in dots))
        for middle, top, bottom in zip(means, tops, bottoms, strict=True):
            if middle == line:
                text.append(MEAN, style="bold cyan")
            else:
                text.append(BAND if top <= line <= bottom and top >= 0 else " ", style="cyan")
        if line < height - 1:
            text.append("\n")
    return text


class _View:
    """Base of all views: title, total number of rows, when the run began and when it was shown last."""

    pause = SECONDS_PER_FRAME

    def __init__(self, title: str, n_rows: int | None = None) -> None:
        self.title, self.total = title, n_rows
        self._began, self._shown = time.monotonic(), 0.0
        # Draws on the terminal, and restores it at the end.
        self._screen: AbstractContextManager[Any] = nullcontext()

    def __enter__(self) -> Self:
        self._screen.__enter__()
        self._began = time.monotonic()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._screen.__exit__(kind, error, trace)

    def seconds(self) -> float:
        return time.monotonic() - self._began

    def update(self, run: Run) -> None:
        """Show the run, if enough time has passed since the last time."""
        if self.seconds() - self._shown >= self.pause:
            self._shown = self.seconds()
            self.show(run)

    def show(self, run: Run) -> None:
        """Show the run now."""
        raise NotImplementedError

    def words(self, run: Run) -> list[str]:
        """Rows, rows per second, error and coverage so far."""
        of = "" if self.total is None else f" of {self.total:,}"
        words = [f"{run.n_rows:,}{of} rows", f"{run.rows_per_second:,.0f} rows/s"]
        if run.track is None:
            words.append(f"{counted(len(run.fleet), 'key')}, {run.fleet.n_live:,} in memory")
        elif run.track.n_scored:
            words.append(f"error {change_text(run.track.error_ratio)} against the last value")
            words.append(f"{run.track.level:.0%} intervals cover {run.track.summary['coverage'].mean():.1%}")
        if run.n_bad:
            words.append(counted(run.n_bad, "bad row"))
        return words


class PlainView(_View):
    """Lines on standard error, every few seconds: for logs, and if there is no terminal."""

    pause = SECONDS_PER_LINE

    def show(self, run: Run) -> None:
        """Show the run now."""
        print(f"{self.title}: {', '.join(self.words(run))}", file=sys.stderr, flush=True)


class LiveView(_View):
    """A panel on the terminal that is redrawn while rows arrive."""

    def __init__(self, title: str, n_rows: int | None = None, units: dict[str, str] | None = None) -> None:
        super().__init__(title, n_rows)
        self.units = units or {}
        self._screen = self._live = Live(console=Console(stderr=True), auto_refresh=False, transient=False)

    def show(self, run: Run) -> None:
        """Show the run now."""
        self._live.update(Panel(self._body(run), title=self.title, border_style="cyan"), refresh=True)

    def _body(self, run: Run) -> Group:
        parts: list[Text | Table] = [Text("   ".join(self.words(run)), style="bold")]
        if self.total:
            width = max(10, self._live.console.width - 8)
            done = round(width * min(1.0, run.n_rows / self.total))
            parts.append(Text("█" * done + "·" * (width - done), style="cyan"))
        if run.predicted is not None and run.plan.horizon is not None:
            parts.append(self._charts(run))
        return Group(*parts)

    def _charts(self, run: Run) -> Table:
        grid = Table(box=None, padding=(1, 1, 0, 0), show_header=False)
        predicted = run.predicted
        assert predicted is not None
        names = run.plan.targets[:MAX_CHARTS]
        room = max(10, self._live.console.width - 36 - len(predicted.mean))
        for j, name in enumerate(names):
            past = np.array([row.values.get(name, np.nan) for row in run.recent])[-room:]
            mean, lower, upper = (part[:, j] for part in (predicted.mean, predicted.lower, predicted.upper))
            unit = self.units.get(name, "")
            label = Text(f"{name}\n", style="bold")
            label.append(f"in {len(mean)} rows\n{mean[-1]:.4g} {unit}\n", style="cyan")
            label.append(f"{lower[-1]:.4g} to {upper[-1]:.4g}", style="dim")
            grid.add_row(label, chart(past, mean, lower, upper))
        if len(run.plan.targets) > len(names):
            grid.add_row(Text(f"and {len(run.plan.targets) - len(names)} more", style="dim"))
        return grid


class Bar(_View):
    """A progress bar: how much of the feed has been read, rows per second, scores."""

    def __init__(self, feed: Source, n_rows: int | None = None) -> None:
        super().__init__(feed.name, n_rows)
        self._feed = feed
        columns = [
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            TextColumn("{task.fields[words]}"),
        ]
        self._screen = self._progress = Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True))
        # The feed of a broker has no end.
        self._task = self._progress.add_task(feed.name, total=n_rows or getattr(feed, "size", None), words="")

    def show(self, run: Run) -> None:
        """Show the run now."""
        done = run.n_rows if self.total else getattr(self._feed, "n_read", 0)
        self._progress.update(self._task, completed=done, words=", ".join(self.words(run)))


def view_for(title: str, n_rows: int | None, units: dict[str, str] | None = None) -> LiveView | PlainView:
    """A panel if standard error is a terminal, else lines."""
    return LiveView(title, n_rows, units) if sys.stderr.isatty() else PlainView(title, n_rows)
