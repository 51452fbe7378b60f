"""Draws the pictures of the documentation: ``python docs/figures.py`` from the root of the repository.

Same code, same pictures: seeds are fixed, and files carry no dates. Only those of the page differ, because it is live.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from PIL import Image

from momostream import MOMoGPForecaster, MOMoGPMonitor, MOMoGPRegressor
from momostream.datasets.wind import WindTurbine
from momostream.distributions.predicted import PredictedValues
from momostream.runs.scores import Track
from momostream.show.plots import plot_calibration, plot_circuit, plot_relevance, plot_scores, plot_steps
from momostream.show.plots.figures import format_times

IMAGES = Path(__file__).parent / "images"
# Fewer colours, smaller files; nobody sees the difference in a drawing.
N_COLOURS = 64


def keep(figure: Figure, name: str, dpi: int = 110) -> None:
    """Save a figure as a small PNG."""
    path = IMAGES / name
    figure.savefig(path, dpi=dpi, metadata={"Software": None})
    shrink(path)


def shrink(path: Path, n_colours: int = N_COLOURS) -> None:
    """Save a picture with few colours."""
    with Image.open(path) as image:
        # Without kmeans, a colour of few pixels, such as that of a sign, becomes another one.
        small = image.convert("RGB").quantize(n_colours, kmeans=4, dither=Image.Dither.NONE)
    small.save(path, optimize=True)


def draw_forecast() -> None:
    """Home page and forecasting tutorial: a forecast, its history and what came."""
    frame = WindTurbine(seed=3, rate=1 / 1800).frame(600)[["wind_speed", "power", "rotor_speed"]]
    history, future = frame[:-24], frame[-24:]
    # Limits of such a machine.
    bounds = {"wind_speed": (0, None), "power": (-100, 5300), "rotor_speed": (-0.5, 16)}
    forecast = MOMoGPForecaster(horizon=24, bounds=bounds, seed=0).fit(history).forecast(24, with_dist=True)
    figure = forecast.plot(history=history[-96:])
    for ax, name in zip(figure.axes, forecast.series, strict=True):
        ax.plot(future.index, future[name], "k.", ms=4, label="what came")
    keep(figure, "forecast.png")


def draw_stream() -> None:
    """How it works: circuit and relevance of a stream model; anomalies tutorial: its scores."""
    model, scores = MOMoGPRegressor(seed=0), []
    shares = {}
    for row, (x, y) in enumerate(WindTurbine(seed=2, time=None).take(900)):
        if row in {700, 760, 820}:
            y["flap_1"] += 5000.0
        scores.append(model.score_one(x, y))
        model.learn_one(x, y)
        if row % 32 == 31:
            shares[row + 1] = model.relevance
        if row == 599:
            # Later it has grown too wide for a page.
            keep(plot_circuit(model), "circuit.png", dpi=130)
    keep(plot_relevance(pd.DataFrame.from_dict(shares, orient="index").rename_axis("row")), "relevance.png")
    figure = Figure(figsize=(8, 2.4), layout="constrained")
    ax = figure.subplots()
    ax.plot(np.arange(300, 900), -np.log10(1.0 - np.array(scores[300:])), lw=0.8)
    ax.axhline(3.0, color="C1", lw=1, label="one in a thousand")
    ax.set(xlabel="row", ylabel="-log10(1 - score)")
    ax.legend(loc="upper left")
    keep(figure, "anomaly.png")


def draw_track() -> None:
    """How it works: error and coverage by step and over time, calibration."""
    frame = WindTurbine(seed=0, rate=1 / 60).frame(2000)[["wind_speed", "power", "generator_temperature"]]
    model, names = MOMoGPForecaster(horizon=12, time="time", seed=0), list(frame.columns)
    track = Track(names, 12)
    for number, (time, row) in enumerate(frame.iterrows(), 1):
        y = row.to_dict()
        model.learn_one(y, {"time": time})
        track.observe(number, y, time)
        if number > 200:
            track.expect(PredictedValues.of(model.forecast(12, with_dist=True), names, track.level))
    keep(plot_steps(track), "steps.png")
    keep(plot_scores(track), "scores.png")
    keep(plot_calibration(track), "calibration.png")


def draw_alarms() -> None:
    """Alarm tutorial: a generator that overheats, what was expected of it, and the score of the monitor."""
    frame = WindTurbine(seed=2, rate=1 / 600).frame(900)[["wind_speed", "power", "generator_temperature"]].round(2)
    healthy, name = frame["generator_temperature"].copy(), "generator_temperature"
    frame.loc[frame.index[800:830], name] += 2.0 * np.arange(30)
    monitor, scores = MOMoGPMonitor(false_alarms="1 per week", time="time"), []
    for time, row in frame.iterrows():
        x = {"time": time, **row.to_dict()}
        scores.append(monitor.score_one(x))
        monitor.learn_one(x)
    shown, event = slice(740, 860), monitor.events[-1]
    figure = Figure(figsize=(8, 4.2), layout="constrained")
    temperature, score = figure.subplots(2, sharex=True)
    times = frame.index[shown]
    temperature.plot(times, frame[name].iloc[shown], "k", lw=1, label="measured")
    temperature.plot(times, healthy.iloc[shown], "C0--", lw=1, label="without the fault")
    temperature.axvspan(event.begin_time, event.end_time, color="C1", alpha=0.25, lw=0, label="event")
    temperature.set_ylabel("generator, °C")
    temperature.legend(loc="upper left")
    score.plot(times, scores[shown], "k", lw=0.8, label="score")
    score.axhline(monitor.threshold, color="C1", lw=1, label="one false alarm per week")
    score.set_ylabel("score")
    score.legend(loc="upper left")
    format_times(score, times.to_numpy())
    keep(figure, "alarms.png")


# ---------------------------------------------------------------------- the idea of a circuit, drawn by hand

INK, WAY, PALE = "#37474f", "#00796b", "#e0f2f1"


def _node(x: int, y: int, text: str, below: str = "", on_way: bool = False) -> str:
    colour = WAY if on_way else INK
    return (
        f'<circle cx="{x}" cy="{y}" r="19" fill="{PALE if on_way else "#fff"}" stroke="{colour}" stroke-width="2"/>'
        f'<text x="{x}" y="{y + 6}" font-size="18" fill="{colour}">{text}</text>'
        f'<text x="{x + 27}" y="{y + 5}" font-size="13" text-anchor="start" fill="{INK}">{below}</text>'
    )


def _edge(x1: int, y1: int, x2: int, y2: int, on_way: bool, text: str = "") -> str:
    colour, width = (WAY, 3.5) if on_way else (INK, 1.2)
    side = -8 if x2 < x1 else 8
    anchor = "end" if x2 < x1 else "start"
    return (
        f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="{colour}" stroke-width="{width}"/>'
        f'<text x="{(x1 + x2) // 2 + side}" y="{(y1 + y2) // 2}" font-size="12" text-anchor="{anchor}" fill="{colour}">'
        f"{text}</text>"
    )


def _leaf(x: int, y: int, rows: str, on_way: bool) -> str:
    """A small process: a curve in its band, through some rows."""
    colour = WAY if on_way else INK
    curve = f"M{x - 42} {y + 14} q 18 -34 40 -12 t 44 -14"
    dots = "".join(
        f'<circle cx="{x + dx}" cy="{y + dy}" r="2.6" fill="{colour}"/>'
        for dx, dy in ((-32, -1), (-16, -8), (0, 3), (16, 10), (30, 4))
    )
    return (
        f'<rect x="{x - 50}" y="{y - 28}" width="100" height="56" rx="7" fill="{PALE if on_way else "#fff"}" '
        f'stroke="{colour}" stroke-width="2"/>'
        f'<path d="{curve}" fill="none" stroke="{colour}" stroke-opacity=".25" stroke-width="13"/>'
        f'<path d="{curve}" fill="none" stroke="{colour}" stroke-width="1.6"/>{dots}'
        f'<text x="{x}" y="{y + 45}" font-size="12" fill="{INK}">{rows}</text>'
    )


def draw_idea() -> None:
    """How it works: sum, gates and leaves, and the way of one row."""
    parts = [
        _edge(360, 40, 190, 120, True, "weight .7"),
        _edge(360, 40, 540, 120, True, "weight .3"),
        _edge(190, 120, 90, 220, False, "wind &lt; 8.2"),
        _edge(190, 120, 280, 220, True, "wind ≥ 8.2"),
        _edge(540, 120, 440, 220, True, "pitch &lt; 3"),
        _edge(540, 120, 640, 220, False, "pitch ≥ 3"),
        _node(360, 40, "+", "sum: a mixture", True),
        _node(190, 120, "×", "gate", True),
        _node(540, 120, "×", "gate", True),
        _leaf(90, 248, "181 rows", False),
        _leaf(280, 248, "204 rows", True),
        _leaf(440, 248, "230 rows", True),
        _leaf(640, 248, "155 rows", False),
    ]
    row = f'<text x="20" y="45" font-size="13" text-anchor="start" fill="{WAY}">a row: wind 9.1, pitch 0.4</text>'
    (IMAGES / "circuit-idea.svg").write_text(
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 720 305" width="720" height="305" '
        f'font-family="sans-serif" text-anchor="middle">{row}{"".join(parts)}</svg>\n',
        encoding="utf-8",
    )


def draw_page() -> None:
    """Operation: the page of the simulated farm on a wall and on a phone; kept where there is no browser."""
    # Only here: the other pictures need no server.
    from momostream.cli.demo_farm import open_farm

    node, chromium = shutil.which("node"), shutil.which("chromium")
    folder = Path(os.environ.get("MOMOSTREAM_PLAYWRIGHT", ".venv/browser"))
    library = (folder / "node_modules" / "playwright-core" / "index.mjs").resolve()
    if node is None or chromium is None or not library.exists():
        print("serve-wall.png and serve-phone.png are kept: they need node, chromium and playwright-core")
        return
    run, page = open_farm("127.0.0.1:0")
    with page as address:
        script = Path(__file__).with_name("page.mjs")
        taking = subprocess.Popen([node, script, library, chromium, address, IMAGES])
        # Rows come in this thread, as long as the browser looks.
        run.run(on_row=lambda run: run.stop() if taking.poll() is not None else None)
    if taking.returncode:
        raise RuntimeError("the browser has failed")
    for name in ("serve-wall.png", "serve-phone.png"):
        # Colours mean something there.
        shrink(IMAGES / name, 256)


if __name__ == "__main__":
    matplotlib.use("Agg")
    IMAGES.mkdir(exist_ok=True)
    draw_idea()
    draw_forecast()
    draw_stream()
    draw_track()
    draw_alarms()
    draw_page()
