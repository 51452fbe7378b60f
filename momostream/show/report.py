"""The report of a run: one HTML file with scores, figures, and what is needed to reproduce it."""

from __future__ import annotations

import base64
import io
import os
import platform
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from html import escape
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from momostream import __version__
from momostream.distributions.forecast import Forecast
from momostream.distributions.prediction import Prediction
from momostream.distributions.scores import error_ratio, means
from momostream.horizon.durations import spoken_steps
from momostream.runs.scores import SCORES, Track
from momostream.show.outline import change_text, counted, has_learnt
from momostream.show.zoom import Zoom
from momostream.storage.container import replace_file

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from momostream.estimators.forecaster import MOMoGPForecaster
    from momostream.estimators.regressor import MOMoGPRegressor

__all__ = ["write_report"]

PACKAGES = ("numpy", "numba", "scipy", "pandas", "river", "matplotlib")
# Dots per inch of the pictures, and of the page that shows them: sharp on screens with fine dots.
DPI, SHOWN = 150, 100
# Most nodes of the circuit: more cannot be read on a page.
MOST_NODES = 16
# Rows of history before a forecast: a multiple of its length, and at least this many.
HISTORY_LENGTHS, LEAST_HISTORY = 5, 30
# Pixels of the widest figure that can still be read when it is shrunk to the page.
WIDE = 1900
# Longer facts than this go to a table instead of a tile.
TILE_LETTERS = 14
# A table of more steps is folded.
OPEN_STEPS = 24
# Targets in the table of the worst days, columns of an alarm.
DAY_TARGETS, ALARM_COLUMNS = 3, 3

HEADINGS = {
    "rmse": ("RMSE", "root mean square error"),
    "naive": ("RMSE, last value", "root mean square error of a forecast of no change"),
    "change": ("against last value", "error of the model, compared with that of the last value"),
    "mae": ("MAE", "mean absolute error"),
    "nlpd": ("NLPD", "mean negative log density, in nats; the smaller the better"),
    "coverage": ("coverage", "values inside their interval"),
}
# Scores whose mean over targets of different units is meaningful.
AVERAGED = ("change", "nlpd", "coverage")


def write_report(
    path: str | os.PathLike[str],
    track: Track,
    model: MOMoGPRegressor | MOMoGPForecaster,
    *,
    forecast: Forecast | Prediction | None = None,
    history: pd.DataFrame | None = None,
    title: str = "momostream report",
    facts: Mapping[str, object] | None = None,
    settings: Mapping[str, object] | None = None,
    command: str | None = None,
    figures: str | os.PathLike[str] | None = None,
) -> Path:
    """Write the results of a run as one HTML file, which loads no other file.

    Parameters
    ----------
    path
        File to create or replace, all or nothing.
    track
        Scores of the run.
    model
        The model at the end of the run.
    forecast
        The last forecast or prediction, which is plotted.
    history
        Rows before the forecast, as for `momostream.show.plots.plot_forecast`; the newest ones are plotted.
    title
        Heading of the report.
    facts
        Further facts about the run, by label; short ones are shown large.
    settings
        Settings of the run, by name; None takes the parameters of the model.
    command
        Command that reproduces the report.
    figures
        Folder in which each figure is saved, too.

    Returns
    -------
    Path
        The file.

    Examples
    --------
    >>> import tempfile
    >>> from momostream import MOMoGPRegressor
    >>> from momostream.distributions.predicted import PredictedValues
    >>> model, track = MOMoGPRegressor(seed=0), Track(["power"])
    >>> for row in range(1, 61):
    ...     x, y = {"wind": row % 7}, {"power": 3.0 * (row % 7)}
    ...     if distribution := model.predict_one(x, with_dist=True):
    ...         track.expect(PredictedValues.of(distribution, track.targets, track.level))
    ...     _ = track.observe(row, y)
    ...     model.learn_one(x, y)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     page = write_report(f"{folder}/report.html", track, model).read_text(encoding="utf-8")
    >>> print("coverage" in page, 'src="http' in page)
    True False
    """
    drawn = _drawn(track, model, forecast, history)
    words = _words(track, model)
    pictures = [_Picture.of(name, figure, *words[name]) for name, figure in drawn.items()]
    zoom = Zoom.of(track) if "lookback" in drawn else Zoom()
    if figures is not None:
        _save_pictures(pictures, Path(figures))
    shown = {"Rows learnt": f"{model.n_rows:,}", **_key_figures(track)}
    shown |= {label: str(text) for label, text in (facts or {}).items()}
    tiles = {label: text for label, text in shown.items() if len(text) <= TILE_LETTERS}
    settings = model._get_params() if settings is None else settings
    others = {label: text for label, text in shown.items() if label not in tiles}
    body = [
        _header(title, track),
        _tiles(tiles),
        *_results(
            track, model, {each.name: each.html(zoom.place if each.name == "lookback" else "") for each in pictures}
        ),
        _section("How to reproduce this report", _origin_parts(command, others, settings)),
    ]
    policy = f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src {zoom.allowed}"
    text = "\n".join(filter(None, [*body, zoom.scripts]))
    page = PAGE.format(title=escape(title), style=STYLE + zoom.style, policy=policy, body=text)
    replace_file(path, [page.encode()])
    return Path(path)


def _results(track: Track, model: Any, pictures: Mapping[str, str]) -> list[str]:
    """The sections about forecast, scores and model; pictures are HTML by name."""
    circuit = (pictures.get(name, "") for name in ("relevance", "correlation", "circuit"))
    return [
        _section("Forecast", [pictures.get("forecast", "")]),
        _section("Alarms", _alarm_parts(track)),
        _section("Quality of the predictions", _score_parts(track, pictures)),
        _section("The model", [*circuit, _code(model.describe())]),
    ]


def _origin_parts(command: str | None, facts: Mapping[str, object], settings: Mapping[str, object]) -> list[str]:
    return [
        "" if command is None else _code(command, "command"),
        _pairs("The run", facts),
        _details("Settings", _pairs("", settings)),
        _details("Versions", _pairs("", _versions())),
    ]


# ---------------------------------------------------------------------------------------------------------------
# Pictures


class _Picture(NamedTuple):
    """A figure with its texts."""

    name: str
    png: bytes
    size: tuple[int, int]
    alt: str
    caption: str

    @classmethod
    def of(cls, name: str, figure: Figure, alt: str, caption: str) -> _Picture:
        from PIL import Image

        drawn, packed = io.BytesIO(), io.BytesIO()
        figure.savefig(drawn, format="png", dpi=DPI, pil_kwargs={"compress_level": 1})
        # Drawings have few colours: a third of the bytes.
        image = Image.open(drawn).convert("RGB").quantize(256)
        image.save(packed, format="png", optimize=True)
        return cls(name, packed.getvalue(), image.size, alt, caption)

    def html(self, more: str = "") -> str:
        """The figure with its caption, and with more of it."""
        data = base64.b64encode(self.png).decode("ascii")
        width, height = self.size
        # Wide figures keep a readable size, and are scrolled sideways.
        kind = ' class="wide"' if width > WIDE else ""
        image = (
            f'<img{kind} src="data:image/png;base64,{data}" alt="{escape(self.alt)}" '
            f'width="{width * SHOWN // DPI}" height="{height * SHOWN // DPI}">'
        )
        return (
            f'<figure id="{self.name}"><div class="frame">{image}</div>{more}'
            f"<figcaption>{escape(self.caption)}</figcaption></figure>"
        )


def _save_pictures(pictures: Iterable[_Picture], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for picture in pictures:
        (folder / f"{picture.name}.png").write_bytes(picture.png)


def _drawn(
    track: Track, model: Any, forecast: Forecast | Prediction | None, history: pd.DataFrame | None
) -> dict[str, Figure]:
    from momostream.show import plots

    figures = {}
    if isinstance(forecast, Forecast):
        # In the order in which the user named them.
        forecast = forecast[[name for name in track.targets if name in forecast.series]]
    if track.n_scored:
        figures["lookback"] = plots.plot_lookback(track)
        figures["scores"] = plots.plot_scores(track)
        if track.pit.to_numpy().any():
            figures["calibration"] = plots.plot_calibration(track)
        if track.n_steps > 1:
            figures["steps"] = plots.plot_steps(track)
    if isinstance(forecast, Forecast):
        recent = None if history is None else history.iloc[-max(HISTORY_LENGTHS * len(forecast), LEAST_HISTORY) :]
        figures["forecast"] = plots.plot_forecast(forecast, recent)
    if forecast is not None and len(track.targets) > 1:
        figures["correlation"] = plots.plot_correlation(forecast)
    if not track.relevance.empty:
        figures["relevance"] = plots.plot_relevance(track)
    if has_learnt(model):
        figures["circuit"] = plots.plot_circuit(model, max_nodes=MOST_NODES, sideways=True)
    return figures


def _words(track: Track, model: Any) -> dict[str, tuple[str, str]]:
    """Alternative text and caption of each figure, for readers who have not seen one like it before."""
    level = f"{100 * track.level:.4g} %"
    several, is_forecaster = len(track.targets) > 1, hasattr(model, "forecast")
    error = (
        "divided by that of a forecast of no change: below 1 is better"
        if several
        else "and that of a forecast of no change (dashed): lower is better"
    )
    shares = (
        "the share of each expert in the blend, the mean over all series and steps"
        if is_forecaster
        else "the share of each input in how much predictions vary; the clock stands for time"
    )
    ahead = f", made {spoken_steps(track.n_steps, track.step)} before" if is_forecaster else ""
    return {
        "lookback": (
            "Newest values and the forecasts of them over time",
            f"Values (dots) beside their predictions{ahead}: the mean (line) and the {level} interval (band). "
            "Drag over a chart to zoom, double click to see all again.",
        ),
        "scores": (
            f"Error, compared with that of the last value, and coverage of the {level} intervals over the run",
            f"Above: the error of the predictions, {error}. Below: share of the values inside their {level} "
            "interval; calibrated intervals stay near the dashed line. Each point is a block of rows, predicted "
            "before they were learnt.",
        ),
        "calibration": (
            "Histograms of the probabilities that the predictions gave to values below the observed ones",
            "Positions of the observed values in their predicted distributions. Bars of equal height, up to the chance "
            "shown by the grey band, mean that the stated probabilities are reliable. A hump in the middle: intervals "
            "are too wide. High ends: too narrow. A slope: predictions are biased.",
        ),
        "steps": (
            f"Error and coverage of the {level} intervals by the number of steps ahead",
            "The same scores by step. Distant steps are harder to forecast; calibrated intervals cover as many values "
            "there as at the first step.",
        ),
        "forecast": (
            "Forecast of the next steps with intervals, after the newest rows",
            "The last forecast: measured values (black), the median forecast (blue), and the bands that contain a "
            "value with 50 % and with 90 % probability.",
        ),
        "correlation": (
            "Table of the correlations between the targets in the last prediction",
            "Correlation of the expected errors: red cells err in the same direction, blue cells in opposite "
            "directions, pale cells hardly together at all.",
        ),
        "relevance": (
            f"Shares of the {'experts' if is_forecaster else 'inputs'} over the run, stacked",
            f"Relevance over the run: {shares}.",
        ),
        "circuit": (
            "The circuit of the model from its root to its Gaussian processes",
            "The current model. At the left are its experts with their weights (the mean over all targets). Blue boxes "
            "split the rows by one quantity, with the values of each side on the edges; green boxes are Gaussian "
            "processes with their numbers of rows, or experts that are not split.",
        ),
    }


# ---------------------------------------------------------------------------------------------------------------
# Numbers


def _key_figures(track: Track) -> dict[str, str]:
    if not track.n_scored:
        return {}
    return {
        "Predictions scored": f"{track.n_scored:,}",
        "Error against the last value": change_text(track.error_ratio),
        f"Inside the {100 * track.level:.4g} % interval": _percent(float(track.summary["coverage"].mean())),
    }


def _score_parts(track: Track, parts: Mapping[str, str]) -> Iterable[str]:
    if not track.n_scored:
        return [
            "<p>Nothing has been scored yet: a prediction is scored when the rows that it predicts have arrived.</p>"
        ]
    return [
        _target_table(track),
        parts.get("lookback", ""),
        _day_table(track),
        *(parts.get(name, "") for name in ("scores", "calibration", "steps")),
        _step_table(track) if track.n_steps > 1 else "",
    ]


def _target_table(track: Track) -> str:
    summary = track.summary
    summary["change"] = summary["rmse"] / summary["naive"].where(summary["naive"] > 0.0) - 1.0
    rows = [[str(name), *(_cell(score, line[score]) for score in HEADINGS)] for name, line in summary.iterrows()]
    return _table("Scores by target, over the whole run", ["target", *HEADINGS], rows)


def _day_table(track: Track) -> str:
    """The days with the largest errors, compared with the usual ones."""
    days = track.lookback.worst_days
    if len(days) < 2:
        return ""
    targets = [str(name) for name in track.targets[:DAY_TARGETS]]
    rows = []
    for times, day in days:
        date = np.datetime64(day.day, "D")
        errors = [_cell("rmse", value) for value in day.rmse[:DAY_TARGETS]]
        rows.append([str(date), f"{times:.1f}", change_text(error_ratio(day.rmse, day.naive_rmse)), *errors])
    header = ["day", "times the usual error", "change", *(f"RMSE of {name}" for name in targets)]
    return _table("The worst days", header, rows)


def _alarm_parts(track: Track) -> list[str]:
    """The newest alarms, each in a line."""
    lookback = track.lookback
    if not lookback.n_alarms:
        return []
    rows = [
        [str(alarm.get("begin") or alarm.get("time") or ""), f"{alarm['row']:,}", *_alarm_cells(alarm)]
        for alarm in reversed(lookback.alarms)
    ]
    shown = (
        f"the newest {len(rows)} of {lookback.n_alarms:,}"
        if lookback.n_alarms > len(rows)
        else counted(len(rows), "alarm")
    )
    return [_table(shown, ["time", "row", "columns", "observed", "expected"], rows)]


def _alarm_cells(alarm: Mapping[str, Any]) -> list[str]:
    """Columns of an alarm, with observed and expected values; the condition of one about rows to come."""
    if "alarm" in alarm:
        return [str(alarm["alarm"]), "", f"probability {alarm['probability']:.0%}"]
    if "columns" not in alarm:
        low, high = (("–" if end is None else _number(end)) for end in (alarm.get("lower"), alarm.get("upper")))
        return [str(alarm.get("target", "")), _number(alarm["value"]), f"{low} to {high}"]
    parts = [(name, part["observed"], part["expected"]) for name, part in alarm["columns"].items()][:ALARM_COLUMNS]
    names = ", ".join(str(name) for name, *_ in parts)
    observed, expected = (
        ", ".join("–" if part[side] is None else _number(part[side]) for part in parts) for side in (1, 2)
    )
    state = "ongoing" if alarm["open"] else f"{alarm['n_rows']:,} rows"
    return [f"{names} ({state})", observed, expected]


def _step_table(track: Track) -> str:
    """All scores of one target; for several targets, the means of scores without a unit."""
    scores = {name: track.by_step[[name]].droplevel(0, axis=1).to_numpy() for name in SCORES}
    scores["change"] = (
        np.array([[error_ratio(*errors)] for errors in zip(scores["rmse"], scores["naive"], strict=True)]) - 1.0
    )
    shown = [name for name in HEADINGS if len(track.targets) == 1 or name in AVERAGED]
    columns = [[_cell(name, value) for value in _known_means(scores[name])] for name in shown]
    rows = [[str(step), *cells] for step, *cells in zip(track.by_step.index, *columns, strict=True)]
    caption = "Scores by step" + ("" if len(track.targets) == 1 else ", the mean over the targets")
    return _details(caption, _table("", ["step", *shown], rows), is_open=track.n_steps <= OPEN_STEPS)


def _known_means(values: NDArray[np.float64]) -> list[float]:
    """Mean of each row over the targets that have a value; NaN if none has."""
    known = ~np.isnan(values)
    found: list[float] = means(np.where(known, values, 0.0).sum(axis=1), known.sum(axis=1)).tolist()
    return found


def _cell(score: str, value: float) -> str:
    if np.isnan(value):
        return "–"
    if score == "coverage":
        return _percent(value)
    return change_text(1.0 + value, 1) if score == "change" else _number(value).replace("-", "−")


def _number(value: float) -> str:
    """Four significant digits.

    >>> _number(0.25), _number(1234.5), _number(12345.6), _number(1e-7)
    ('0.2500', '1,234', '12,346', '1.000e-07')
    """
    return f"{value:,.0f}" if 1e3 <= abs(value) < 1e9 else f"{value:#.4g}"


def _percent(value: float) -> str:
    return "–" if np.isnan(value) else f"{100 * value:.1f} %"


def _versions() -> dict[str, str]:
    found = {"momostream": __version__, "Python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


# ---------------------------------------------------------------------------------------------------------------
# The page


def _header(title: str, track: Track) -> str:
    names = [str(name) for name in track.targets]
    shown = ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")
    ahead = f", up to {spoken_steps(track.n_steps, track.step)} ahead" if track.n_steps > 1 else ""
    now = datetime.now(UTC)
    return (
        f"<header><h1>{escape(title)}</h1><p>Predictions of {escape(shown)}{ahead}, each made before its rows were "
        f'learnt. <time datetime="{now:%Y-%m-%dT%H:%MZ}">{now:%Y-%m-%d %H:%M} UTC</time></p></header>'
    )


def _tiles(values: Mapping[str, str]) -> str:
    tiles = "".join(f"<div><dt>{escape(label)}</dt><dd>{escape(text)}</dd></div>" for label, text in values.items())
    return f'<dl class="tiles">{tiles}</dl>'


def _code(text: str, kind: str = "text") -> str:
    return f'<pre class="{kind}"><code>{escape(text)}</code></pre>'


def _section(heading: str, parts: Iterable[str]) -> str:
    inner = "\n".join(filter(None, parts))
    return f"<section><h2>{escape(heading)}</h2>\n{inner}\n</section>" if inner else ""


def _details(summary: str, inner: str, is_open: bool = False) -> str:
    return (
        f"<details{' open' if is_open else ''}><summary>{escape(summary)}</summary>{inner}</details>" if inner else ""
    )


def _table(caption: str, header: list[str], rows: list[list[str]]) -> str:
    titles = [HEADINGS.get(name, (name, "")) for name in header]
    head = "".join(f'<th scope="col" title="{escape(long)}">{escape(short)}</th>' for short, long in titles)
    body = "".join(
        f'<tr><th scope="row">{escape(first)}</th>{"".join(f"<td>{escape(cell)}</td>" for cell in rest)}</tr>'
        for first, *rest in rows
    )
    said = f"<caption>{escape(caption)}</caption>" if caption else ""
    return f'<div class="scroll"><table>{said}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _pairs(caption: str, values: Mapping[str, object]) -> str:
    rows = "".join(
        f'<tr><th scope="row">{escape(str(name))}</th><td class="text">{escape(_plain(value))}</td></tr>'
        for name, value in values.items()
    )
    said = f"<caption>{escape(caption)}</caption>" if caption else ""
    return f'<div class="scroll"><table class="pairs">{said}<tbody>{rows}</tbody></table></div>' if rows else ""


def _plain(value: object) -> str:
    if isinstance(value, tuple | list):
        return ", ".join(map(str, value)) or "none"
    return "none" if value is None else str(value)


STYLE = """
:root { color-scheme: light dark; --page: #f6f7f9; --card: #fff; --text: #1c2430; --soft: #5b6675; --line: #dde2e9;
  --accent: #0072b2; }
@media (prefers-color-scheme: dark) { :root { --page: #12161c; --card: #1b212a; --text: #e6eaf0; --soft: #9aa6b6;
  --line: #313a47; --accent: #56b4e9; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--text); font: 16px/1.55 system-ui, -apple-system, "Segoe UI",
  Roboto, "Helvetica Neue", Arial, sans-serif; }
main { max-width: 62rem; margin: 0 auto; padding: 2.2rem 1.2rem 3rem; }
header { border-left: 5px solid var(--accent); padding-left: 1rem; }
h1 { font-size: clamp(1.5rem, 4vw, 2.1rem); line-height: 1.2; margin: 0 0 .4rem; overflow-wrap: anywhere; }
h2 { font-size: 1.25rem; margin: 0 0 1rem; }
header p { color: var(--soft); margin: 0; max-width: 50rem; overflow-wrap: anywhere; }
time { white-space: nowrap; }
section { background: var(--card); border: 1px solid var(--line); border-radius: 12px; padding: 1.3rem 1.4rem;
  margin-top: 1.4rem; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(8.6rem, 1fr)); gap: .8rem; margin: 1.6rem 0 0; }
.tiles div { display: flex; flex-direction: column-reverse; justify-content: flex-end; background: var(--card);
  border: 1px solid var(--line); border-radius: 12px; padding: .8rem 1rem; }
.tiles dt { color: var(--soft); font-size: .85rem; line-height: 1.3; }
.tiles dd { margin: 0; font-size: 1.65rem; font-weight: 650; font-variant-numeric: tabular-nums; }
figure { margin: 1.4rem 0; }
.frame { background: #fff; border-radius: 8px; padding: .5rem; overflow-x: auto; }
img { display: block; max-width: 100%; height: auto; margin: 0 auto; }
img.wide { max-width: none; }
figcaption { color: var(--soft); font-size: .92rem; margin-top: .5rem; max-width: 48rem; }
.frame[hidden], #zoom[hidden] { display: none; }
#zoom .u-title { font-size: .95rem; font-weight: 600; }
#zoom > div { margin-bottom: 1.1rem; }
#zoom .u-legend { font-size: .8rem; color: var(--soft); }
#zoom .u-legend th, #zoom .u-legend td { border: 0; padding: 0 .15rem; min-width: 0; text-align: left; }
#zoom .u-legend .u-series { margin-right: .8rem; }
#zoom .u-legend .u-series:nth-child(2) { display: none; }
#zoom .u-legend .u-series:nth-child(3) .u-marker { background: var(--accent); opacity: .22; }
.scroll { overflow-x: auto; margin: .6rem 0; }
table { border-collapse: collapse; width: 100%; font-size: .92rem; font-variant-numeric: tabular-nums; }
caption { text-align: left; color: var(--soft); padding-bottom: .4rem; }
th, td { padding: .38rem .7rem; border-bottom: 1px solid var(--line); text-align: right; vertical-align: top; }
td { white-space: nowrap; }
th:first-child { text-align: left; padding-left: 0; }
thead th { color: var(--soft); font-weight: 600; vertical-align: bottom; }
tbody th { font-weight: 500; overflow-wrap: anywhere; min-width: 7rem; }
td.text { text-align: left; white-space: normal; overflow-wrap: anywhere; }
.pairs th { width: 14rem; color: var(--soft); }
pre { background: var(--page); border: 1px solid var(--line); border-radius: 8px; padding: .8rem 1rem; overflow-x: auto;
  font: .86rem/1.5 ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; }
.command { user-select: all; white-space: pre-wrap; overflow-wrap: anywhere; }
summary { cursor: pointer; padding: .35rem 0; color: var(--accent); }
@media (max-width: 40rem) { main { padding: 1.2rem .7rem 2rem; } section { padding: 1rem .9rem; }
  .tiles { grid-template-columns: 1fr 1fr; } .tiles dd { font-size: 1.35rem; } .frame { padding: .2rem; }
  th, td { padding: .35rem .45rem; } .pairs th { width: auto; }
  img { max-width: 36rem; } img.wide { max-width: none; } }
@media print { :root { color-scheme: light; --page: #fff; --card: #fff; --text: #000; --soft: #444; --line: #ccc; }
  main { max-width: none; padding: 0; } section { border: 0; padding: 0; } img.wide { max-width: 100%; }
  figure, .tiles div, tr { break-inside: avoid; } h2 { break-after: avoid; } .frame, .scroll { overflow: visible; } }
"""

PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<main>
{body}
</main>
</body>
</html>
"""
