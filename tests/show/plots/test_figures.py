"""What holds for all plots."""

from __future__ import annotations

import subprocess
import sys

import matplotlib
import pandas as pd
import pytest
from matplotlib.figure import Figure

from momostream.show.plots import (
    plot_calibration,
    plot_circuit,
    plot_correlation,
    plot_forecast,
    plot_lengthscales,
    plot_prediction,
    plot_relevance,
)
from tests.show.plots.figures import ROOT, forecast_of

DRAWINGS = {
    "circuit": lambda model, distribution, ax=None: plot_circuit(model, ax=ax),
    "lengthscales": lambda model, distribution, ax=None: plot_lengthscales(model, ax=ax),
    "prediction": lambda model, distribution, ax=None: plot_prediction(distribution, ax=ax),
    "forecast": lambda model, distribution, ax=None: plot_forecast(forecast_of(["power"]), ax=ax),
    "correlation": lambda model, distribution, ax=None: plot_correlation(distribution, ax=ax),
    "calibration": lambda model, distribution, ax=None: plot_calibration([0.1, 0.7], ax=ax),
    "relevance": lambda model, distribution, ax=None: plot_relevance(pd.DataFrame({"wind": [0.5, 1.0]}), ax=ax),
}


@pytest.mark.parametrize("draw", DRAWINGS.values(), ids=DRAWINGS)
def test_figure_can_be_saved(draw, gated, distribution, tmp_path):
    figure = draw(gated, distribution)
    assert isinstance(figure, Figure)
    figure.savefig(tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 1000


@pytest.mark.parametrize("draw", DRAWINGS.values(), ids=DRAWINGS)
def test_given_axes_are_drawn_into(draw, gated, distribution):
    ax = Figure().add_subplot()
    assert draw(gated, distribution, ax) is ax.figure
    assert ax.has_data()


@pytest.mark.parametrize("draw", DRAWINGS.values(), ids=DRAWINGS)
def test_global_settings_are_left_alone(draw, gated, distribution):
    before = dict(matplotlib.rcParams)
    draw(gated, distribution)
    assert dict(matplotlib.rcParams) == before


def test_axes_of_a_subfigure(gated):
    outer = Figure()
    left, _ = outer.subfigures(1, 2)
    assert plot_circuit(gated, ax=left.add_subplot()) is outer


@pytest.mark.system
def test_pyplot_is_left_alone():
    code = "import sys, momostream.show.plots; print('matplotlib.pyplot' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout.strip()) == (0, "False"), done.stderr
