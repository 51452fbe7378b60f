"""The demonstration of ``momostream demo``: a simulated turbine, streamed, forecast, shown, and reported on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from momostream.datasets.wind import WindTurbine
from momostream.feeds import Event, Rejected, Row
from momostream.runs.fleet import Fleet
from momostream.runs.plan import Plan, make_model
from momostream.runs.run import Run
from momostream.show.progress import view_for
from momostream.show.report import write_report

__all__ = ["SERIES", "TurbineFeed", "run_demo"]

SERIES = ("flap_1", "edge_1", "tower_acceleration", "power", "rotor_speed", "wind_speed")
# Rows per second of the turbine: twenty rows are about one turn of its rotor. It is forecast once a second.
RATE, EVERY = 4.0, 4


class TurbineFeed:
    """The simulated turbine as a feed of rows."""

    name = "simulated turbine"
    is_replayable = True
    is_live = False

    def __init__(self, turbine: WindTurbine) -> None:
        self.turbine = turbine
        self._number = 0

    def events(self) -> Iterator[Event]:
        """Endless rows."""
        for number, (x, y) in enumerate(self.turbine, 1):
            if number > self._number:
                self._number = number
                values = {name: value for name, value in {**x, **y}.items() if name != "time" and value is not None}
                yield Row(number, number, x["time"], values)

    @property
    def position(self) -> dict[str, Any]:
        """Number of the last row."""
        return {"number": self._number}

    def seek(self, position: Mapping[str, Any]) -> None:
        """Resume after this row."""
        self._number = position["number"]

    def acknowledge(self) -> None:
        """Do nothing: the simulation can repeat its rows."""

    def unfinished(self, event: Row | Rejected) -> None:
        """No row is ever unfinished."""

    def close(self) -> None:
        """Do nothing."""


@contextmanager
def _page(run: Run) -> Iterator[None]:
    """Serve a live page while the demonstration runs, where the packages for it are installed."""
    if find_spec("starlette") is None or find_spec("uvicorn") is None:
        yield
        return
    from momostream.cli.messages import notify
    from momostream.cli.serve import serve_run

    with serve_run(run, "127.0.0.1:0", None, "Simulated turbine", units=dict(WindTurbine.UNITS)) as address:
        notify(f"live page while it runs: {address} (momostream demo --serve keeps one open)")
        yield


def run_demo(folder: Path, n_rows: int = 2400, horizon: int = 20, seed: int = 0) -> Path:
    """Stream a simulated turbine, forecast it once a second, show it, and write a report into a folder.

    The turbine is `momostream.datasets.wind.WindTurbine`, a simulation; it is not the data set of the paper.

    Returns
    -------
    Path
        The report; its figures are in the same folder.
    """
    folder.mkdir(parents=True, exist_ok=True)
    turbine = WindTurbine(seed=seed, rate=RATE, dropouts=0.01)
    plan = Plan(SERIES, (), "time", horizon, every=EVERY)
    run = Run(TurbineFeed(turbine), Fleet(make_model(plan, {"seed": seed})), plan)
    assert run.track is not None
    with _page(run), view_for("simulated turbine", n_rows, dict(WindTurbine.UNITS)) as view:
        run.run(n_rows, view.update)
        view.show(run)
    speed = run.rows_per_second
    return write_report(
        folder / "report.html",
        run.track,
        run.model,
        forecast=run.forecast(),
        history=run.history,
        title="A simulated wind turbine, forecast as its rows arrive",
        facts={"Rows learnt": f"{run.n_rows:,}", "Rows per second": f"{speed:,.0f}"},
        settings={**vars(plan), **run.model._get_params()},
        command=f"momostream demo --rows {n_rows} --horizon {horizon} --seed {seed}",
        figures=folder,
    )
