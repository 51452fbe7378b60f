"""The farm of ``momostream demo --serve``: simulated turbines, a row of each every second, and now and then a fault."""

from __future__ import annotations

import math
import time as clock
from collections.abc import Iterator
from contextlib import AbstractContextManager
from datetime import datetime
from typing import TYPE_CHECKING, Any

from momostream.cli.demo_feed import TurbineFeed
from momostream.datasets.wind import WindFarm, WindTurbine
from momostream.feeds import Event, Row

if TYPE_CHECKING:
    from momostream.runs.run import Run

__all__ = ["FarmFeed", "open_farm"]

TARGETS = ("power", "generator_temperature", "rotor_speed")
N_TURBINES, HORIZON = 24, 18
# Rows of each turbine that are learnt before the page shows something, and rows per second from there on.
FIRST_ROWS, PACE = 144, 1.0
# A fault begins every so many rows of the farm, on one turbine after the other, and lasts so long.
FAULT_EVERY, FAULT_ROWS, FAULT_DEGREES = 40, 12, 80.0

# Of each turbine. With it, the first 400 rows of seed 0 have an event for each fault and no other one.
FALSE_ALARMS = "1 per month"


class FarmFeed(TurbineFeed):
    """Simulated turbines as a feed: quickly up to now, then in step with the clock.

    Parameters
    ----------
    farm
        The turbines.
    pace
        Rows of each turbine per second, once `FIRST_ROWS` have come.
    """

    name = "simulated farm"
    is_live = True

    def __init__(self, farm: WindFarm, pace: float = PACE) -> None:
        self.farm, self.pace = farm, pace
        self._number = 0

    def events(self) -> Iterator[Event]:
        """Endless rows."""
        due = None
        for number, (key, x, _) in enumerate(self.farm, 1):
            round_, place = divmod(number - 1, len(self.farm))
            if place == 0 and round_ >= FIRST_ROWS:
                due = clock.monotonic() if due is None else due + 1.0 / self.pace
                while clock.monotonic() < due:
                    yield None
                    clock.sleep(0.05)
            self._number = number
            values = {name: x[name] for name in TARGETS if x.get(name) is not None}
            if fault_of(round_, len(self.farm)) == place:
                # A loose contact: readings drop, each by another amount. A shift that stays would soon be what is
                # expected.
                drop = FAULT_DEGREES * (0.5 + 0.5 * math.cos(2.4 * round_))
                values["generator_temperature"] = values.get("generator_temperature", 60.0) - drop
            yield Row(number, number, x["time"], values, key)


def fault_of(round_: int, n_turbines: int) -> int | None:
    """Which turbine has a fault at this row; None if all is well.

    Examples
    --------
    >>> [fault_of(n, 24) for n in (0, FIRST_ROWS + 9, FIRST_ROWS + 10, FIRST_ROWS + 50)]
    [None, None, 5, 12]
    """
    which, since = divmod(round_ - FIRST_ROWS - 10, FAULT_EVERY)
    return (7 * which + 5) % n_turbines if which >= 0 and since < FAULT_ROWS else None


def open_farm(address: str, seed: int = 0, pace: float = PACE) -> tuple[Run, AbstractContextManager[str]]:
    """The run of a simulated farm, and the page about it, which is served while it is entered."""
    from momostream.cli.serve import serve_run
    from momostream.runs.fleet import Fleet
    from momostream.runs.plan import Plan, make_model
    from momostream.runs.run import Run

    farm = WindFarm(N_TURBINES, seed=seed, rate=1 / 600, start=datetime(2026, 3, 1))
    plan = Plan(TARGETS, (), "time", HORIZON, key="turbine")
    settings: dict[str, Any] = {"seed": seed}
    run = Run(FarmFeed(farm, pace), Fleet(make_model(plan, settings)), plan, bad_rows="skip", false_alarms=FALSE_ALARMS)
    units = {name: WindTurbine.UNITS[name].replace("degC", "°C") for name in TARGETS}
    return run, serve_run(run, address, 0.999, "Simulated wind farm", units=units)
