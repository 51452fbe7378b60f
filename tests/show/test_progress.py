"""Progress of a run on the terminal."""

from __future__ import annotations

import io

import numpy as np

from momostream.cli import demo_feed as simulated
from momostream.show import progress as live


def test_the_live_view_draws_forecasts():
    from rich.console import Console

    from momostream.runs.fleet import Fleet
    from momostream.runs.plan import Plan, make_model
    from momostream.runs.run import Run

    plan = Plan(simulated.SERIES, (), "time", 5)
    fleet = Fleet(make_model(plan, {"experts": ("last value",)}))
    run = Run(simulated.TurbineFeed(simulated.WindTurbine(seed=0, rate=4.0)), fleet, plan)
    view = live.LiveView("turbine", 60, {"power": "kW"})
    console = Console(file=io.StringIO(), width=100, force_terminal=True)
    view._live.console = console
    with view:
        run.run(60, view.update)
        view.show(run)
    text = console.file.getvalue()
    for part in (
        "60 of 60 rows",
        "rows/s",
        "against the last value",
        "90% intervals cover",
        "power",
        "kW",
        live.MEAN,
        live.BAND,
        live.HISTORY,
    ):
        assert part in text, part


def test_charts_of_missing_and_constant_values():
    nothing = np.array([np.nan])
    assert str(live.chart(nothing, nothing, nothing, nothing, 2)).strip() == ""
    ones = np.ones(3)
    assert str(live.chart(ones, ones, ones, ones, 1)) == "•••━━━"
