"""Simulated feeds: a wind turbine that runs for ever, and a farm of them under one weather.

A small aeroelastic simulation is integrated in fixed blocks, from the outside in: the weather, turbulence and gusts,
three blades of three elements each in a wake that follows their thrust, a rotor with its generator and pitch
controller, the tower, the heat of the generator, and last the sensors with their noise and troubles. Random numbers
are drawn block by block, each purpose from a generator of its own: rows do not depend on how they are read, and
switching one option on leaves the chances of the others as they were.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass, field
from datetime import datetime
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pandas as pd
from numba import types
from numpy.typing import NDArray

from momostream.kernels import kernel, ro, rw

__all__ = ["WindFarm", "WindTurbine"]

f8 = types.f8
Array = NDArray[np.float64]
Flags = NDArray[np.bool_]
Pair = tuple[dict[str, Any], dict[str, float]]

# --- the machine: about 5 MW, in SI units ---------------------------------------------------------

AIR_DENSITY = 1.225
ROTOR_RADIUS = 63.0
HUB_HEIGHT = 90.0
ROTOR_INERTIA = 4.4e7
ROTOR_FRICTION = 2e4  # N m per rad/s
RATED_SPEED = 1.267
RATED_POWER = 5.295e6  # at the shaft, for 5 MW into the grid
EFFICIENCY = 0.95
STANDBY_POWER = 3e4
TORQUE_GAIN = 2.15e6  # N m per (rad/s)^2: keeps the best tip speed ratio below the rated speed
TORQUE_RAMP = (0.88, 0.95)  # shares of the rated speed between which the torque rises from that curve to full power
COUPLING_SPEEDS = (0.35, 0.5)  # rad/s between which the generator takes hold

# A blade of three elements, chord and twist by Betz's rule for a lift coefficient of 1 at the design tip speed ratio.
DESIGN_RATIO = 7.5
DESIGN_SINE = 1 / (2 * math.pi)  # of the angle of attack there: the lift slope is 2 pi
RADII = ROTOR_RADIUS * np.array([0.35, 0.65, 0.89])
WIDTHS = ROTOR_RADIUS * np.array([0.30, 0.30, 0.18])  # the last 2 % of the blade are lost at the tip
_INFLOW = np.arctan(2 / 3 / (DESIGN_RATIO * RADII / ROTOR_RADIUS))
CHORDS = 4 * math.pi / 3 * RADII * np.sin(_INFLOW) * np.tan(_INFLOW)
SIN_TWIST = np.sin(_INFLOW - math.asin(DESIGN_SINE))
COS_TWIST = np.cos(_INFLOW - math.asin(DESIGN_SINE))
STALL_SINE = 0.29
DRAG = 0.01
SIN_BLADES, COS_BLADES = np.sin(2 * math.pi / 3 * np.arange(3)), np.cos(2 * math.pi / 3 * np.arange(3))
BLADE_MOMENT = 3.6e5  # mass times distance of its centre from the root, kg m
GRAVITY = 9.81
ICE_LIFT, ICE_DRAG, ICE_WEIGHT = 0.1, 0.03, 0.15  # lift lost, drag and weight gained under thick ice
ICE_SHARES = np.array([1.0, 0.6, 0.2])  # of that weight: it lies unevenly on the blades

TOWER_FREQUENCY = 0.32  # Hz
TOWER_DAMPING = 0.01
TOWER_MASS = 4.4e5
TOWER_RADIUS = 2.0
TOWER_CLEARANCE = 6.0  # from its axis to the rotor plane
SHEAR_EXPONENT = 0.16

# Supervision, by the one-minute wind: m/s.
CUT_IN, CUT_IN_AGAIN, CUT_OUT_AGAIN, CUT_OUT = 2.5, 3.5, 22.0, 25.0
SUPERVISION_SECONDS = 60.0
OVERSPEED = 1.25 * RATED_SPEED
DEGREE = math.pi / 180
FEATHER = 86 * DEGREE  # not quite: a rotor at rest turns over slowly, which spares its bearings
START_PITCH = 30 * DEGREE  # a standing rotor is turned into the wind only as far as it gains speed
PITCH_RATE = 8 * DEGREE
PITCH_LAG, PITCH_LAG_FAULT = 0.3, 15.0  # s
PITCH_FAULT = 3 * DEGREE
PITCH_KP, PITCH_KI = 1.6, 0.4
PITCH_SCHEDULE = 6.3 * DEGREE  # the angle at which a degree of pitch works twice as strongly

HEAT_SECONDS = 1800.0
HEAT_RISE = 70.0  # K at rated power
WEAR_RISE = 25.0  # K at rated speed

# --- the wind -------------------------------------------------------------------------------------

# Turbulence is a sum of first-order processes, each a quarter of the length of the one before. Variances that go with
# length^(2/3) add up to a spectrum of slope -5/3 between the longest and the shortest.
EDDY_LENGTHS = 500.0 * 0.25 ** np.arange(5)
EDDY_SHARES = np.sqrt(EDDY_LENGTHS ** (2 / 3) / np.sum(EDDY_LENGTHS ** (2 / 3)))
# What an eddy that is small beside the rotor still moves, averaged over it.
EDDY_ON_ROTOR = 1 / np.sqrt(1 + (0.5 * ROTOR_RADIUS / EDDY_LENGTHS) ** 2)
# The rest turns up as differences across the rotor, half from top to bottom, half from side to side.
GRADIENT_LENGTH = 0.5 * ROTOR_RADIUS
GRADIENT_SHARE = math.sqrt(0.5 * np.sum(EDDY_SHARES**2 * (1 - EDDY_ON_ROTOR**2)))
N_NORMALS = len(EDDY_LENGTHS) + 2
LEAST_WIND = 0.3
MOST_WIND = 32.0

HOUR = 3600.0
DAY = 24 * HOUR
KNOT_SECONDS = 60.0
KNOTS = 1440  # a day of weather is drawn at once
# First-order processes at the knots, time constants (s) and standard deviations: the weather's and the hour's log wind,
# direction (rad), temperature (K).
WANDER_SECONDS = np.array([36000.0, 2400.0, 21600.0, 43200.0])
WANDER_SPREADS = np.array([0.28, 0.07, 0.5, 3.0])
MEAN_DIRECTION = 4.2
MEAN_TEMPERATURE, ICING_TEMPERATURE = 10.0, -4.0
SPACING = 880.0  # m between the turbines of a farm

# --- the run --------------------------------------------------------------------------------------

BLOCK_STEPS = 40_000
FINE_STEP, COARSE_STEP = 0.1, 1.0  # s, at most
COARSE_INTERVAL = 10.0  # s between rows, above which steps are coarse
LEAD_SECONDS = 300.0  # run before the first row, so that no transient is seen
DROPOUT_ROWS, STUCK_ROWS = 10, 60  # mean length of a burst
EDDY_STEPS = 10  # the mean wind, which sets how fast eddies pass, hardly moves within so many steps

# Places in the arrays of `_simulate`.
SPEED, AZIMUTH, SWAY, SWAY_RATE, INTEGRAL, RUNNING, MINUTE_WIND, HEAT = range(8)
AMBIENT, ICE, LAGGING, WEAR, POWER_SHARE, SPEED_SHARE, TORQUE_SHARE, FINE_PITCH = range(8)


@kernel(f8(f8, f8, f8, f8, f8, f8, ro(1), rw(1)))
def _blade_torque(
    wind: float,
    speed: float,
    sin_pitch: float,
    cos_pitch: float,
    lift: float,
    drag: float,
    wake: Array,
    thrusts: Array,
) -> float:
    """Return the torque of a blade that turns at `speed` in a `wind`; `thrusts` becomes that of its elements."""
    torque = 0.0
    for j in range(RADII.shape[0]):
        normal = wind - wake[j]
        tangential = speed * RADII[j]
        flow = math.sqrt(normal * normal + tangential * tangential) + 1e-9
        sine = sin_pitch * COS_TWIST[j] + cos_pitch * SIN_TWIST[j]
        cosine = cos_pitch * COS_TWIST[j] - sin_pitch * SIN_TWIST[j]
        sin_attack = (normal * cosine - tangential * sine) / flow
        cos_attack = (tangential * cosine + normal * sine) / flow
        attached = 1.0 / (1.0 + (sin_attack / STALL_SINE) ** 8)
        # Attached flow lifts by thin-aerofoil theory, separated flow like a flat plate.
        cl = lift * sin_attack * (attached * 2.0 * math.pi + (1.0 - attached) * 2.0 * cos_attack)
        cd = drag + (1.0 - attached) * 1.3 * sin_attack * sin_attack
        pressure = 0.5 * AIR_DENSITY * CHORDS[j] * WIDTHS[j] * flow
        thrusts[j] = pressure * (cl * tangential + cd * normal)
        torque += pressure * (cl * normal - cd * tangential) * RADII[j]
    return torque


@kernel(f8(f8, f8, f8, f8))
def _generator_torque(speed: float, rated_speed: float, power: float, gain: float) -> float:
    """Return the torque that the generator takes at a rotor speed."""
    knee = TORQUE_RAMP[0] * rated_speed
    full = TORQUE_RAMP[1] * rated_speed
    torque = gain * min(speed, knee) ** 2
    if speed > knee:
        torque += (power / full - torque) * min((speed - knee) / (full - knee), 1.0)
    slow, fast = COUPLING_SPEEDS
    coupled = min(max((speed - slow) / (fast - slow), 0.0), 1.0)
    return coupled * min(torque, power / max(speed, slow))


@kernel(f8(f8, f8, ro(1), rw(1)))
def _pitch_demand(collective: float, dt: float, now: Array, state: Array) -> float:
    """Return the pitch angle that the controller asks for; supervision and integral in `state` move on."""
    wind = state[MINUTE_WIND]
    if state[RUNNING] > 0.0:
        if wind < CUT_IN or wind > CUT_OUT or state[SPEED] > OVERSPEED:
            state[RUNNING] = 0.0
    elif CUT_IN_AGAIN < wind < CUT_OUT_AGAIN and state[SPEED] < COUPLING_SPEEDS[1]:
        state[RUNNING] = 1.0
    if state[RUNNING] == 0.0:
        state[INTEGRAL] = FEATHER
        return FEATHER
    error = state[SPEED] - RATED_SPEED * now[SPEED_SHARE]
    gain = 1.0 / (1.0 + collective / PITCH_SCHEDULE)
    least = now[FINE_PITCH] + START_PITCH * max(0.0, 1.0 - state[SPEED] / COUPLING_SPEEDS[0])
    # Held between its bounds: an integral that winds up in weak wind would let the rotor run away in the next gust.
    state[INTEGRAL] = min(max(state[INTEGRAL] + PITCH_KI * gain * error * dt, least), FEATHER)
    return min(max(state[INTEGRAL] + PITCH_KP * gain * error, least), FEATHER)


@kernel(
    types.void(*[ro(1)] * 2, *[ro(2)] * 2, *[ro(1)] * 2, f8, types.i8, types.b1, *[rw(1)] * 4, rw(2)), reassociate=False
)
def _simulate(
    mean_wind: Array,
    gusts: Array,
    normals: Array,
    conditions: Array,
    tower: Array,
    site: Array,
    dt: float,
    n_steps: int,
    averaged: bool,
    state: Array,
    pitches: Array,
    wake: Array,
    eddies: Array,
    out: Array,
) -> None:
    """Integrate the turbine over a block of rows, `n_steps` steps of `dt` seconds each.

    `mean_wind`, `gusts` and the rows of `normals` go by step; `conditions` and `out` by row. `tower` is the exact
    transition of the free tower over a step, `site` holds turbulence intensity, lift and heat. `state`, `pitches`,
    `wake` and `eddies` are overwritten by what they are at the end. A row of `out` is its last step, or the mean of its
    steps where `averaged`.
    """
    turbulence, lift, heat = site[0], site[1], site[2]
    n_eddies = EDDY_LENGTHS.shape[0]
    decays = np.empty(n_eddies + 2)
    kicks = np.empty(n_eddies + 2)
    thrusts = np.empty((3, RADII.shape[0]))  # by blade and element
    torques = np.empty(3)
    sines = np.empty(3)
    cosines = np.empty(3)
    stiffness = TOWER_MASS * (2.0 * math.pi * TOWER_FREQUENCY) ** 2
    step = 0
    for i in range(conditions.shape[0]):
        now = conditions[i]
        out[i] = 0.0
        for k in range(n_steps):
            # --- wind at the anemometer and over the rotor
            mean = mean_wind[step]
            if step % EDDY_STEPS == 0:
                for e in range(n_eddies + 2):
                    length = EDDY_LENGTHS[e] if e < n_eddies else GRADIENT_LENGTH
                    decays[e] = math.exp(-dt * mean / length)
                    kicks[e] = math.sqrt(1.0 - decays[e] ** 2)
            for e in range(n_eddies + 2):
                eddies[e] = decays[e] * eddies[e] + kicks[e] * normals[step, e]
            deviation = turbulence * mean
            at_point = 0.0
            on_rotor = 0.0
            for e in range(n_eddies):
                at_point += EDDY_SHARES[e] * eddies[e]
                on_rotor += EDDY_SHARES[e] * EDDY_ON_ROTOR[e] * eddies[e]
            gust = deviation * gusts[step]
            hub_wind = max(mean + deviation * at_point + gust, LEAST_WIND)
            rotor_wind = mean + deviation * on_rotor + gust
            upward = deviation * GRADIENT_SHARE * eddies[n_eddies]
            sideward = deviation * GRADIENT_SHARE * eddies[n_eddies + 1]
            state[MINUTE_WIND] += (hub_wind - state[MINUTE_WIND]) * min(dt / SUPERVISION_SECONDS, 1.0)

            # --- blades
            speed = state[SPEED]
            passing = 0.0
            sine = math.sin(state[AZIMUTH])
            cosine = math.cos(state[AZIMUTH])
            for b in range(3):
                # Blades follow each other at 120 degrees.
                sines[b] = sine * COS_BLADES[b] + cosine * SIN_BLADES[b]
                cosines[b] = cosine * COS_BLADES[b] - sine * SIN_BLADES[b]
                height = 0.7 * ROTOR_RADIUS * cosines[b] / HUB_HEIGHT
                shear = 1.0 + SHEAR_EXPONENT * height * (1.0 - 0.5 * (1.0 - SHEAR_EXPONENT) * height)
                if cosines[b] < 0.0:
                    # Potential flow in front of a cylinder.
                    along = TOWER_CLEARANCE**2
                    across = (0.7 * ROTOR_RADIUS * sines[b]) ** 2
                    shear -= TOWER_RADIUS**2 * (along - across) / (along + across) ** 2
                wind = max((rotor_wind + upward * cosines[b] + sideward * sines[b]) * shear, LEAST_WIND)
                wind -= state[SWAY_RATE]
                passing += wind / 3.0
                torques[b] = _blade_torque(
                    wind,
                    speed,
                    math.sin(pitches[b]),
                    math.cos(pitches[b]),
                    lift * (1.0 - ICE_LIFT * now[ICE]),
                    DRAG + ICE_DRAG * now[ICE],
                    wake,
                    thrusts[b],
                )
            thrust = 0.0
            for j in range(RADII.shape[0]):
                # Momentum theory gives the wake that belongs to this thrust; it builds up as air passes the rotor.
                ring = thrusts[0, j] + thrusts[1, j] + thrusts[2, j]
                through = max(passing - wake[j], 0.35 * passing, 0.1)
                settled = ring / (4.0 * math.pi * AIR_DENSITY * RADII[j] * WIDTHS[j] * through)
                settled = min(max(settled, -0.5 * abs(passing)), 0.65 * abs(passing))
                wake[j] += (settled - wake[j]) * min(dt * abs(passing) / ROTOR_RADIUS, 1.0)
                thrust += ring

            # --- rotor, generator, controller
            aerodynamic = torques[0] + torques[1] + torques[2]
            electric = _generator_torque(
                speed, RATED_SPEED * now[SPEED_SHARE], RATED_POWER * now[POWER_SHARE], TORQUE_GAIN * now[TORQUE_SHARE]
            )
            acceleration = (aerodynamic - electric - ROTOR_FRICTION * speed) / ROTOR_INERTIA
            state[SPEED] = max(speed + acceleration * dt, 0.0)
            state[AZIMUTH] = (state[AZIMUTH] + state[SPEED] * dt) % (2.0 * math.pi)
            collective = (pitches[0] + pitches[1] + pitches[2]) / 3.0
            demand = _pitch_demand(collective, dt, now, state)
            for b in range(3):
                lag = PITCH_LAG
                aim = demand
                if now[LAGGING] == b:
                    lag = PITCH_LAG_FAULT
                    aim = demand + PITCH_FAULT
                change = (aim - pitches[b]) * min(dt / lag, 1.0)
                pitches[b] += min(max(change, -PITCH_RATE * dt), PITCH_RATE * dt)

            # --- tower: exact for a thrust that holds over the step
            rest = thrust / stiffness
            bend = state[SWAY] - rest
            rate = state[SWAY_RATE]
            state[SWAY] = rest + tower[0] * bend + tower[1] * rate
            state[SWAY_RATE] = tower[2] * bend + tower[3] * rate
            sway = -(stiffness * (state[SWAY] - rest) / TOWER_MASS) - (
                4.0 * math.pi * TOWER_FREQUENCY * TOWER_DAMPING * state[SWAY_RATE]
            )

            # --- heat of the losses
            rise = HEAT_RISE * heat * electric * speed / RATED_POWER + WEAR_RISE * now[WEAR] * speed / RATED_SPEED
            state[HEAT] += (now[AMBIENT] + rise - state[HEAT]) * min(dt / HEAT_SECONDS, 1.0)

            # --- readings
            step += 1
            if averaged:
                share = 1.0 / n_steps
            elif k == n_steps - 1:
                share = 1.0
            else:
                continue
            row = out[i]
            row[0] += share * hub_wind
            row[1] += share * speed * 30.0 / math.pi
            row[2] += share * collective / DEGREE
            row[3] += share * sines[0]
            row[4] += share * cosines[0]
            row[5] += share * (EFFICIENCY * electric * speed - STANDBY_POWER) / 1e3
            row[6] += share * sway
            row[7] += share * state[HEAT]
            for b in range(3):
                # Moments in and out of the rotor plane, turned with the blade about its own axis.
                weight = BLADE_MOMENT * (1.0 + ICE_WEIGHT * now[ICE] * ICE_SHARES[b])
                inside = torques[b] - ROTOR_INERTIA / 3.0 * acceleration + weight * GRAVITY * sines[b]
                outside = -weight * sway
                for j in range(RADII.shape[0]):
                    outside += thrusts[b, j] * RADII[j]
                sine = math.sin(pitches[b])
                cosine = math.cos(pitches[b])
                row[8 + b] += share * (outside * cosine + inside * sine) / 1e3
                row[11 + b] += share * (inside * cosine - outside * sine) / 1e3


@kernel(types.void(ro(2), ro(1), ro(1), rw(1), rw(2)))
def _wander(normals: Array, decays: Array, spreads: Array, state: Array, out: Array) -> None:
    """Run first-order processes, one per column, on from `state`, which is overwritten."""
    for i in range(out.shape[0]):
        for k in range(out.shape[1]):
            kick = spreads[k] * math.sqrt(1.0 - decays[k] ** 2)
            state[k] = decays[k] * state[k] + kick * normals[i, k]
            out[i, k] = state[k]


@kernel(types.void(ro(2), f8, f8, rw(1, types.b1), rw(2, types.b1)))
def _bursts(uniforms: Array, begins: float, ends: float, state: Flags, out: Flags) -> None:
    """Switch each column on and off with these probabilities per row, on from `state`, which is overwritten."""
    for i in range(out.shape[0]):
        for k in range(out.shape[1]):
            if uniforms[i, k] < (ends if state[k] else begins):
                state[k] = not state[k]
            out[i, k] = state[k]


@kernel(types.void(ro(2, types.b1), rw(1), rw(2)))
def _hold(stuck: Flags, last: Array, out: Array) -> None:
    """Replace stuck readings by those before; `last`, the row before, is overwritten."""
    for i in range(out.shape[0]):
        for k in range(out.shape[1]):
            # There is nothing before the first row.
            if stuck[i, k] and not math.isnan(last[k]):
                out[i, k] = last[k]
            last[k] = out[i, k]


# --- weather and events ---------------------------------------------------------------------------


class _Site(NamedTuple):
    """Where a turbine stands and in what it differs from its neighbours."""

    number: int = 0
    position: tuple[float, float] = (0.0, 0.0)
    reach: float = 0.0  # m from the middle of the farm to its edge
    speed_up: float = 1.0
    lift: float = 1.0
    heat: float = 1.0


class _Weather:
    """Mean wind and temperature at a site, from one region's weather that travels with the wind."""

    def __init__(self, turbine: WindTurbine, site: _Site) -> None:
        self._rng = _generator(turbine.seed, 0, "weather")
        self._site = site
        self._mean_wind = turbine.mean_wind
        self._mean_temperature = ICING_TEMPERATURE if turbine.icing else MEAN_TEMPERATURE
        midnight = turbine.start.replace(hour=0, minute=0, second=0, microsecond=0)
        self._second_of_day = (turbine.start - midnight).total_seconds()
        self._state = np.zeros(len(WANDER_SECONDS))
        # Before the first row, too: the wind at the far edge of a farm has passed the near one earlier.
        self._begins = -DAY
        self._times, self._wind, self._direction, self._temperature = self._draw_day()

    def at(self, times: Array) -> tuple[Array, Array]:
        """Mean wind and temperature at increasing `times` in seconds, no earlier than those of calls before."""
        while self._times[-1] < times[-1]:
            kept = self._times > times[0] - 2 * DAY
            known = (self._times, self._wind, self._direction, self._temperature)
            self._times, self._wind, self._direction, self._temperature = (
                np.append(old[kept], new) for old, new in zip(known, self._draw_day(), strict=True)
            )
        if self._site.reach:
            east, north = self._site.position
            direction = np.interp(times, self._times, self._direction)
            way = self._site.reach + east * np.sin(direction) + north * np.cos(direction)
            times = times - np.minimum(way / np.interp(times, self._times, self._wind), DAY)
        wind = self._site.speed_up * np.interp(times, self._times, self._wind)
        return wind, np.interp(times, self._times, self._temperature)

    def _draw_day(self) -> tuple[Array, Array, Array, Array]:
        """Times, wind, direction and temperature at the knots of the next day."""
        times = self._begins + KNOT_SECONDS * np.arange(KNOTS, dtype=np.float64)
        self._begins += DAY
        knots = np.empty((KNOTS, len(WANDER_SECONDS)))
        decays = np.exp(-KNOT_SECONDS / WANDER_SECONDS)
        _wander(self._rng.standard_normal(knots.shape), decays, WANDER_SPREADS, self._state, knots)
        warmth = np.cos(2 * math.pi * (times + self._second_of_day - 15 * HOUR) / DAY)
        # The mean of a log-normal wind is above exp(mean of its log).
        log_wind = knots[:, 0] + knots[:, 1] - 0.5 * np.sum(WANDER_SPREADS[:2] ** 2)
        wind = np.clip(self._mean_wind * (1 + 0.1 * warmth) * np.exp(log_wind), 1.0, MOST_WIND)
        return times, wind, MEAN_DIRECTION + knots[:, 2], self._mean_temperature + 5 * warmth + knots[:, 3]


class _Event(NamedTuple):
    start: float  # s after the start of the feed
    end: float
    kind: str
    size: float  # uniform in [0, 1)

    def level(self, times: Array, ramp: float) -> Array:
        """Rise to 1 within `ramp` seconds, and back before the end."""
        ramp = min(ramp, 0.5 * (self.end - self.start))
        return np.interp(times, [self.start, self.start + ramp, self.end - ramp, self.end], [0, 1, 1, 0])


class _Plan(NamedTuple):
    kinds: tuple[str, ...]
    gap: float  # mean time between events, s
    shortest: float
    longest: float


PLANS = {
    "gusts": _Plan(("gust",), 1 * HOUR, 10.0, 14.0),
    "icing": _Plan(("icing",), 10 * HOUR, 2 * HOUR, 6 * HOUR),
    "faults": _Plan(("pitch_lag", "bearing_wear"), 6 * HOUR, 1 * HOUR, 4 * HOUR),
    "regimes": _Plan(("curtailment", "derating", "new_controller"), 4 * HOUR, 1 * HOUR, 6 * HOUR),
}
# The channel in which an event shows most.
SHOWS_IN = {
    "icing": "power",
    "bearing_wear": "generator_temperature",
    "curtailment": "power",
    "derating": "rotor_speed",
    "new_controller": "rotor_speed",
}


class _Timeline:
    """The events of one plan, one after another, for ever."""

    def __init__(self, rng: np.random.Generator, plan: _Plan) -> None:
        self._rng = rng
        self._plan = plan
        self._events = [self._after(0.0)]

    def _after(self, time: float) -> _Event:
        plan, rng = self._plan, self._rng
        start = time + plan.gap * (0.5 + rng.exponential(0.5))
        end = start + rng.uniform(plan.shortest, plan.longest)
        return _Event(start, end, plan.kinds[rng.integers(len(plan.kinds))], rng.random())

    def between(self, start: float, end: float) -> list[_Event]:
        """Events that touch an interval; those that end before it are forgotten."""
        while self._events[-1].start < end:
            self._events.append(self._after(self._events[-1].end))
        self._events = [event for event in self._events if event.end > start]
        return [event for event in self._events if event.start < end]


# --- the feeds ------------------------------------------------------------------------------------

PURPOSES = ("weather", "site", "turbulence", "noise", "dropouts", "stuck", *PLANS)


def _generator(seed: int, number: int, purpose: str) -> np.random.Generator:
    return np.random.default_rng([seed, number, PURPOSES.index(purpose)])


class _Bursts:
    """Which readings are affected, in bursts of geometric length that make up a share of the time."""

    def __init__(self, rng: np.random.Generator, share: float, n_rows: int, n_channels: int) -> None:
        self._rng = rng
        self._ends = 1 / n_rows
        self._begins = share / (1 - share) / n_rows
        self._state = np.zeros(n_channels, dtype=bool)

    def draw(self, n_rows: int) -> Flags:
        uniforms = self._rng.random((n_rows, len(self._state)))
        # Sine and cosine come from one encoder.
        uniforms[:, 4] = uniforms[:, 3]
        flags = np.empty(uniforms.shape, dtype=bool)
        _bursts(uniforms, self._begins, self._ends, self._state, flags)
        return flags


@dataclass(eq=False)
class WindTurbine:
    """A simulated wind turbine of about 5 MW: an endless, seeded feed of operating data and blade-root moments.

    It is a simulation, made to look like the feeds this package is for; it is *not* the data set of the paper. Eight
    readings that a turbine takes anyway are the inputs, and six moments at the roots of its blades, which cost a strain
    gauge each, are the targets. All 14 can be forecast as series: see `frame`.

    The wind is turbulence with a -5/3 spectrum and now and then a gust, on a mean that wanders and has a daily cycle.
    Three blades see it through shear and tower shadow. Rotor speed, pitch, power, the sway of the tower and the
    temperature of the generator follow from equations of motion and a controller with cut-in, rated and cut-out wind.

    Parameters
    ----------
    seed
        Not negative. Same seed, same rows, bit for bit, however they are read.
    rate
        Rows per second. From 1 Hz up a row is what the sensors read at that moment; below, it is the mean over the
        interval that ends at its timestamp, as in SCADA records: less noise, and an azimuth that averages out. The
        simulation moves in steps of at most 0.1 s, or of at most 1 s where rows are more than 10 s apart:
        ``rate=1/600`` is fast at the price of less exact motion within the interval.
    mean_wind
        Long-term mean at hub height, m/s.
    turbulence
        Intensity: standard deviation within ten minutes as a share of the mean.
    noise
        Of the sensors, as a multiple of what is typical; 0 switches it off.
    dropouts
        Share of readings that are missing, in bursts of 10 rows on average. They are absent from the dicts and NaN in
        frames.
    stuck
        Share of time in which a sensor repeats its last reading, 60 rows at a time on average.
    icing
        Whether the weather is cold and ice gathers on the blades for hours: less power, uneven blades.
    faults
        Whether there are faults: the pitch actuator of one blade lags and stands off, a bearing wears and heats up.
    regimes
        Whether the operation changes: curtailed power, derated speed, another controller after maintenance.
    start
        Naive timestamp of the first row.
    time
        Key of the timestamp in ``x`` and name of the index of frames. None: no timestamps, and frames count their rows.

    Examples
    --------
    >>> from momostream.datasets import WindTurbine
    >>> turbine = WindTurbine(seed=0)
    >>> x, y = next(iter(turbine))
    >>> x["time"], sorted(y)
    (datetime.datetime(2025, 1, 1, 0, 0), ['edge_1', 'edge_2', 'edge_3', 'flap_1', 'flap_2', 'flap_3'])
    >>> sum(1 for x, y in turbine.take(1000))
    1000

    Frames hold the same rows, inputs first:

    >>> turbine.frame(3)[["wind_speed", "power"]].round(0)
                         wind_speed   power
    time
    2025-01-01 00:00:00         7.0  1034.0
    2025-01-01 00:00:01         6.0  1041.0
    2025-01-01 00:00:02         7.0  1020.0
    >>> WindTurbine(rate=1 / 600).frame(144).shape
    (144, 14)

    What goes wrong is known to the second, as truth for detectors:

    >>> WindTurbine(seed=0, faults=True).episodes(80_000)[["kind", "channel"]]
            kind channel
    0  pitch_lag  flap_3
    1  pitch_lag  flap_3
    """

    INPUTS: ClassVar[tuple[str, ...]] = (
        "wind_speed",
        "rotor_speed",
        "pitch",
        "azimuth_sin",
        "azimuth_cos",
        "power",
        "tower_acceleration",
        "generator_temperature",
    )
    TARGETS: ClassVar[tuple[str, ...]] = ("flap_1", "flap_2", "flap_3", "edge_1", "edge_2", "edge_3")
    UNITS: ClassVar[dict[str, str]] = {
        "wind_speed": "m/s",
        "rotor_speed": "rpm",
        "pitch": "deg",
        "azimuth_sin": "1",
        "azimuth_cos": "1",
        "power": "kW",
        "tower_acceleration": "m/s^2",
        "generator_temperature": "degC",
        **dict.fromkeys(TARGETS, "kN m"),
    }
    NOISE: ClassVar[tuple[float, ...]] = (0.1, 0.02, 0.05, 0.005, 0.005, 10, 0.01, 0.2, 40, 40, 40, 30, 30, 30)

    seed: int = 0
    _: KW_ONLY
    rate: float = 1.0
    mean_wind: float = 9.0
    turbulence: float = 0.12
    noise: float = 1.0
    dropouts: float = 0.0
    stuck: float = 0.0
    icing: bool = False
    faults: bool = False
    regimes: bool = False
    start: datetime = datetime(2025, 1, 1)
    time: str | None = "time"
    _site: _Site = field(default=_Site(), init=False, repr=False)

    def __post_init__(self) -> None:
        if isinstance(self.seed, bool) or not isinstance(self.seed, int | np.integer) or self.seed < 0:
            raise ValueError(f"seed={self.seed!r} is not accepted: use a whole number that is not negative")
        for name, low, high in [
            ("rate", 1e-6, 1e4),
            ("mean_wind", 1, 30),
            ("turbulence", 0, 0.5),
            ("noise", 0, 1e3),
            ("dropouts", 0, 0.9),
            ("stuck", 0, 0.9),
        ]:
            value = getattr(self, name)
            # NaN is between no two numbers.
            if not isinstance(value, int | float | np.number) or not low <= value <= high:
                raise ValueError(f"{name}={value!r} is not accepted: use a number from {low:g} to {high:g}")
        for name in ("icing", "faults", "regimes"):
            if not isinstance(getattr(self, name), bool):
                raise ValueError(f"{name}={getattr(self, name)!r} is not accepted: use True or False")
        if not isinstance(self.start, datetime) or self.start.tzinfo is not None:
            raise ValueError(f"start={self.start!r} is not accepted: use a datetime without time zone")
        if self.time is not None and (not isinstance(self.time, str) or self.time in self.UNITS):
            raise ValueError(f"time={self.time!r} is not accepted: use None or a name that is not a channel's")

    @property
    def desc(self) -> str:
        """What the feed is, in a sentence."""
        return (type(self).__doc__ or "").split("\n", 1)[0]

    @property
    def n_features(self) -> int:
        """Inputs, the timestamp not counted."""
        return len(self.INPUTS)

    @property
    def n_outputs(self) -> int:
        """Targets."""
        return len(self.TARGETS)

    def __iter__(self) -> Iterator[Pair]:
        n_inputs = len(self.INPUTS)
        for first, block in self._blocks():
            names, columns = self.INPUTS, block.T.tolist()
            inputs, targets = columns[:n_inputs], columns[n_inputs:]
            if self.time is not None:
                names, inputs = (self.time, *names), [self._times(first, len(block)).tolist(), *inputs]
            xs = [dict(zip(names, row, strict=True)) for row in zip(*inputs, strict=True)]
            ys = [dict(zip(self.TARGETS, row, strict=True)) for row in zip(*targets, strict=True)]
            if self.dropouts:
                xs, ys = [_present(x) for x in xs], [_present(y) for y in ys]
            yield from zip(xs, ys, strict=True)

    def take(self, k: int) -> Iterator[Pair]:
        """Iterate over the first `k` rows."""
        return itertools.islice(self, k)

    def frame(self, n: int) -> pd.DataFrame:
        """The first `n` rows, inputs then targets, indexed by time.

        Parameters
        ----------
        n
            Rows, at least 1.

        Returns
        -------
        pandas.DataFrame
            Shape ``(n, 14)``.
        """
        return next(self.chunks(n))

    def chunks(self, size: int) -> Iterator[pd.DataFrame]:
        """Iterate for ever over frames of `size` rows each, one behind the other.

        Parameters
        ----------
        size
            Rows of a frame, at least 1.

        Yields
        ------
        pandas.DataFrame
            Shape ``(size, 14)``. Same rows as everywhere, whatever the size.
        """
        if size < 1:
            raise ValueError(f"{size} rows are not accepted: use at least 1")
        return self._chunks(size)

    def _chunks(self, size: int) -> Iterator[pd.DataFrame]:
        columns = [*self.INPUTS, *self.TARGETS]
        parts: list[Array] = []
        first = n_rows = 0
        for _, block in self._blocks():
            while len(block):
                parts.append(block[: size - n_rows])
                block = block[size - n_rows :]
                n_rows += len(parts[-1])
                if n_rows < size:
                    continue
                index: pd.Index[Any] = pd.RangeIndex(first, first + size)
                if self.time is not None:
                    index = pd.DatetimeIndex(self._times(first, size), name=self.time)
                yield pd.DataFrame(np.concatenate(parts), index=index, columns=columns)
                parts, n_rows, first = [], 0, first + size

    def episodes(self, n: int) -> pd.DataFrame:
        """What goes on beside normal operation during the first `n` rows: the truth for detectors.

        Parameters
        ----------
        n
            Rows.

        Returns
        -------
        pandas.DataFrame
            By start, a row per episode: ``start``, ``end`` (the first moment after it; it can lie behind the rows asked
            for), ``kind`` (``icing``, ``pitch_lag``, ``bearing_wear``, ``curtailment``, ``derating``,
            ``new_controller``, ``stuck``) and ``channel``, the one in which it shows most. Readings that drop out are
            not listed: they are seen to be missing.
        """
        rows: list[tuple[float, float, str, str]] = []
        for timeline in self._timelines().values():
            for event in timeline.between(0.0, n / self.rate):
                shows = f"flap_{_lagging_blade(event) + 1}" if event.kind == "pitch_lag" else SHOWS_IN[event.kind]
                rows.append((event.start, event.end, event.kind, shows))
        rows += [(first / self.rate, stop / self.rate, "stuck", name) for first, stop, name in self._stuck_spans(n)]
        rows.sort()
        start = np.datetime64(self.start, "us")
        seconds = np.array([row[:2] for row in rows]).reshape(-1, 2)
        stamps = start + np.round(1e6 * seconds).astype("timedelta64[us]")
        return pd.DataFrame(
            {
                "start": stamps[:, 0],
                "end": stamps[:, 1],
                "kind": pd.Series([row[2] for row in rows], dtype=str),
                "channel": pd.Series([row[3] for row in rows], dtype=str),
            }
        )

    def _stuck_spans(self, n: int) -> list[tuple[int, int, str]]:
        """Rows, from the first to behind the last, over which each channel is stuck."""
        if not self.stuck:
            return []
        n_lead = self._steps()[2]
        bursts = self._bursts("stuck")
        # Some more, so that what is stuck at the end gets its own end: hardly anything is for so long.
        stuck = bursts.draw(n_lead + n + 10 * STUCK_ROWS)[n_lead:]
        edges = np.diff(np.pad(stuck.astype(np.int8), ((1, 1), (0, 0))), axis=0)
        spans = []
        for k, name in enumerate((*self.INPUTS, *self.TARGETS)):
            firsts, stops = np.flatnonzero(edges[:, k] == 1), np.flatnonzero(edges[:, k] == -1)
            spans += [(int(i), int(j), name) for i, j in zip(firsts, stops, strict=True) if i < n]
        return spans

    def _times(self, first: int, n_rows: int) -> NDArray[np.datetime64]:
        microseconds = np.round(np.arange(first, first + n_rows) * (1e6 / self.rate)).astype("timedelta64[us]")
        return np.datetime64(self.start, "us") + microseconds

    def _rng(self, purpose: str) -> np.random.Generator:
        return _generator(self.seed, self._site.number, purpose)

    def _bursts(self, option: str) -> _Bursts:
        n_rows = {"dropouts": DROPOUT_ROWS, "stuck": STUCK_ROWS}[option]
        return _Bursts(self._rng(option), getattr(self, option), n_rows, len(self.UNITS))

    def _timelines(self) -> dict[str, _Timeline]:
        """Events of the options that are switched on."""
        return {
            name: _Timeline(self._rng(name), PLANS[name])
            for name in ("icing", "faults", "regimes")
            if getattr(self, name)
        }

    def _steps(self) -> tuple[int, int, int]:
        """Steps per row, rows per block, rows before the first."""
        interval = 1 / self.rate
        longest = FINE_STEP if interval <= COARSE_INTERVAL else COARSE_STEP
        n_steps = math.ceil(interval / longest - 1e-9)
        return n_steps, max(1, BLOCK_STEPS // n_steps), math.ceil(LEAD_SECONDS * self.rate)

    def _blocks(self) -> Iterator[tuple[int, Array]]:
        """Rows in the blocks in which they are simulated, each with the number of its first row."""
        n_steps, n_rows, n_lead = self._steps()
        readings = self._readings(n_steps, n_rows, -n_lead)
        for first, block in zip(itertools.count(-n_lead, n_rows), readings, strict=False):
            hidden = max(0, -first)
            if hidden < n_rows:
                yield first + hidden, block[hidden:]

    def _readings(self, n_steps: int, n_rows: int, first: int) -> Iterator[Array]:
        """Blocks of what the sensors say, from row `first` on."""
        noise_rng = self._rng("noise")
        # The mean of n readings a second apart has 1 / sqrt(n) of their noise.
        noise = self.noise * math.sqrt(min(1.0, self.rate)) * np.array(self.NOISE)
        stuck, dropouts = self._bursts("stuck"), self._bursts("dropouts")
        last = np.full(len(self.UNITS), np.nan)
        for block in self._truth(n_steps, n_rows, first):
            if self.noise:
                block += noise * noise_rng.standard_normal(block.shape)
            if self.stuck:
                _hold(stuck.draw(n_rows), last, block)
            if self.dropouts:
                block[dropouts.draw(n_rows)] = np.nan
            yield block

    def _truth(self, n_steps: int, n_rows: int, first: int) -> Iterator[Array]:
        """Blocks of what there is to be read, from row `first` on."""
        interval = 1 / self.rate
        dt = interval / n_steps
        weather = _Weather(self, self._site)
        gusts = _Timeline(self._rng("gusts"), PLANS["gusts"])
        timelines = self._timelines()
        rng = self._rng("turbulence")
        tower = _tower_step(dt)
        site = np.array([self.turbulence, self._site.lift, self._site.heat])
        steps = dt * np.arange(1, n_rows * n_steps + 1, dtype=np.float64)
        wind, ambient = weather.at(np.array([(first - 1) * interval]))
        state = _settled(float(wind[0]), float(ambient[0]), rng)
        pitches, wake, eddies = np.zeros(3), np.full(3, 0.3 * wind[0]), rng.standard_normal(N_NORMALS)
        while True:
            times = (first - 1) * interval + steps
            wind, ambient = weather.at(times)
            out = np.empty((n_rows, len(self.UNITS)))
            events = [event for line in timelines.values() for event in line.between(times[0], times[-1])]
            _simulate(
                wind,
                _gust_shapes(times, gusts.between(times[0], times[-1])),
                rng.standard_normal((len(times), N_NORMALS)),
                _conditions(times[n_steps - 1 :: n_steps], ambient[n_steps - 1 :: n_steps], events),
                tower,
                site,
                dt,
                n_steps,
                self.rate < 1,
                state,
                pitches,
                wake,
                eddies,
                out,
            )
            yield out
            first += n_rows


def _present(readings: dict[str, Any]) -> dict[str, Any]:
    # NaN is the one value that differs from itself.
    return {key: value for key, value in readings.items() if value == value}


def _tower_step(dt: float) -> Array:
    """Transition of bend and its rate over `dt` seconds of the free tower, by rows."""
    natural = 2 * math.pi * TOWER_FREQUENCY
    decay, frequency = TOWER_DAMPING * natural, natural * math.sqrt(1 - TOWER_DAMPING**2)
    sine, cosine = math.sin(frequency * dt) / frequency, math.cos(frequency * dt)
    step = [cosine + decay * sine, sine, -(natural**2) * sine, cosine - decay * sine]
    return math.exp(-decay * dt) * np.array(step)


def _settled(wind: float, ambient: float, rng: np.random.Generator) -> Array:
    """About the state in which a turbine runs in a steady wind."""
    state = np.zeros(8)
    state[SPEED] = min(DESIGN_RATIO * wind / ROTOR_RADIUS, RATED_SPEED)
    state[AZIMUTH] = rng.uniform(0, 2 * math.pi)
    state[RUNNING] = CUT_IN_AGAIN < wind < CUT_OUT
    state[MINUTE_WIND] = wind
    state[HEAT] = ambient + HEAT_RISE * TORQUE_GAIN * state[SPEED] ** 3 / RATED_POWER
    return state


def _gust_shapes(times: Array, events: list[_Event]) -> Array:
    """Wind of the gusts, in standard deviations of the turbulence: a dip, the rise, a dip."""
    out = np.zeros(len(times))
    for event in events:
        now = slice(*np.searchsorted(times, [event.start, event.end]))
        phase = (times[now] - event.start) / (event.end - event.start)
        out[now] = -0.37 * (2 + 2 * event.size) * np.sin(3 * math.pi * phase) * (1 - np.cos(2 * math.pi * phase))
    return out


def _lagging_blade(event: _Event) -> int:
    return int(3 * event.size)


def _conditions(times: Array, ambient: Array, events: list[_Event]) -> Array:
    """What `_simulate` has to know of ambient and events, by row."""
    out = np.zeros((len(times), 8))
    out[:, AMBIENT] = ambient
    out[:, LAGGING] = -1
    out[:, [POWER_SHARE, SPEED_SHARE, TORQUE_SHARE]] = 1
    for event in events:
        now = (times >= event.start) & (times < event.end)
        if event.kind == "icing":
            out[:, ICE] += (0.6 + 0.4 * event.size) * event.level(times, 0.5 * HOUR)
        elif event.kind == "bearing_wear":
            out[:, WEAR] += (0.6 + 0.4 * event.size) * event.level(times, 0.25 * HOUR)
        elif event.kind == "pitch_lag":
            out[now, LAGGING] = _lagging_blade(event)
        elif event.kind == "curtailment":
            out[now, POWER_SHARE] = 0.3 + 0.4 * event.size
        elif event.kind == "derating":
            out[now, SPEED_SHARE] = 0.8 + 0.1 * event.size
            # At full power the slower rotor would stall.
            out[now, POWER_SHARE] = out[now, SPEED_SHARE] ** 2
        else:
            out[now, TORQUE_SHARE] = 1.5
            out[now, FINE_PITCH] = 2 * DEGREE
    return out


class WindFarm:
    """Several simulated turbines in one weather: an endless, seeded feed of rows by turbine.

    Mean wind and temperature travel over the farm with the wind, so that a turbine sees a little later what those
    upstream have seen. Turbulence, gusts, sensors and troubles are each turbine's own; the turbines differ a little.

    Parameters
    ----------
    n_turbines
        How many.
    seed
        Of the whole farm; not negative.
    **options
        Of every turbine: see `WindTurbine`.

    Attributes
    ----------
    keys : tuple of str
        Of the turbines: ``"T01"``, ``"T02"``, and so on.

    Examples
    --------
    >>> from momostream.datasets import WindFarm
    >>> farm = WindFarm(3, seed=0)
    >>> [key for key, x, y in farm.take(4)]
    ['T01', 'T02', 'T03', 'T01']

    A turbine on its own gives the rows that it gives within the farm:

    >>> farm["T02"].frame(1000).shape
    (1000, 14)
    """

    def __init__(self, n_turbines: int, seed: int = 0, **options: Any) -> None:
        if isinstance(n_turbines, bool) or not isinstance(n_turbines, int | np.integer) or n_turbines < 1:
            raise ValueError(f"n_turbines={n_turbines!r} is not accepted: use a whole number from 1 on")
        n_columns = math.ceil(math.sqrt(n_turbines))
        places = np.array([divmod(i, n_columns) for i in range(n_turbines)], dtype=float)
        places = SPACING * (places - places.mean(axis=0))
        reach = float(np.hypot(*places.T).max())
        width = max(2, len(str(n_turbines)))
        self._turbines: dict[str, WindTurbine] = {}
        for number, (north, east) in enumerate(places.tolist(), 1):
            turbine = WindTurbine(seed, **options)
            speed_up, lift, heat = 1 + _generator(seed, number, "site").uniform(-1, 1, 3) * (0.03, 0.02, 0.08)
            turbine._site = _Site(number, (east, north), reach, float(speed_up), float(lift), float(heat))
            self._turbines[f"T{number:0{width}d}"] = turbine
        self.keys = tuple(self._turbines)

    def __len__(self) -> int:
        return len(self._turbines)

    def __getitem__(self, key: str) -> WindTurbine:
        return self._turbines[key]

    def __iter__(self) -> Iterator[tuple[str, dict[str, Any], dict[str, float]]]:
        for pairs in zip(*self._turbines.values(), strict=True):
            for key, (x, y) in zip(self.keys, pairs, strict=True):
                yield key, x, y

    def take(self, k: int) -> Iterator[tuple[str, dict[str, Any], dict[str, float]]]:
        """Iterate over the first `k` rows, of all turbines together."""
        return itertools.islice(self, k)
