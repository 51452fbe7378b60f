"""Charts of a report that can be zoomed: values of a run beside their forecasts. The scripts are part of the page."""

from __future__ import annotations

import base64
import hashlib
import json
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

import numpy as np

from momostream.runs.scores import Track

__all__ = ["Zoom"]

# Targets with a chart.
MOST_CHARTS = 6
# Digits are as many as can be read off a chart.
DIGITS = 6
MICROSECONDS = 1e6


class Zoom(NamedTuple):
    """Parts of a page with charts.

    Attributes
    ----------
    place
        Where the charts are drawn; hidden without scripts.
    scripts
        Their data, and the scripts that draw them.
    style
        Style sheet of the charts.
    allowed
        The scripts, as a Content-Security-Policy names them: no others run.
    """

    place: str = ""
    scripts: str = ""
    style: str = ""
    allowed: str = "'none'"

    @classmethod
    def of(cls, track: Track) -> Zoom:
        """The charts of a run; empty parts if nothing has been compared yet."""
        if not track.lookback.rows:
            return cls()
        # "<" would end the script inside of a name.
        data = json.dumps(_data(track), allow_nan=False).replace("<", "\\u003c")
        codes = [_text("serve/page/uplot/uplot.js"), _text("show/zoom.js")]
        scripts = f'<script type="application/json" id="zoom-data">{data}</script>'
        return cls(
            '<div id="zoom" role="img" hidden></div>',
            scripts + "".join(f"<script>{code}</script>" for code in codes),
            _text("serve/page/uplot/uplot.css"),
            " ".join(f"'sha256-{_digest(code)}'" for code in codes),
        )


def _data(track: Track) -> dict[str, Any]:
    rows = list(track.lookback.rows)
    times = np.array([row.time for row in rows])
    is_time = track.has_dates and not np.isnan(times).any()
    x = times / MICROSECONDS if is_time else np.array([row.row for row in rows], dtype=np.float64)
    parts = {"value": "actual", "mean": "mean", "lower": "lower", "upper": "upper"}
    return {
        "x": x.tolist(),
        "isTime": is_time,
        "level": f"{100 * track.level:.4g} %",
        "targets": [
            {"name": str(name)} | {key: [_plain(getattr(row, part)[j]) for row in rows] for key, part in parts.items()}
            for j, name in enumerate(track.targets[:MOST_CHARTS])
        ],
    }


def _plain(value: float) -> float | None:
    return float(f"{value:.{DIGITS}g}") if np.isfinite(value) else None


@cache
def _text(name: str) -> str:
    """A file of the package: uPlot is bundled once, for the live page and for reports."""
    return files("momostream").joinpath(name).read_text(encoding="utf-8")


def _digest(code: str) -> str:
    return base64.b64encode(hashlib.sha256(code.encode()).digest()).decode("ascii")
