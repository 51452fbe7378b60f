"""A wind turbine on arrays: the machine, its weather, and the events of its life.

A small aeroelastic simulation is integrated in fixed steps, from the outside in: the weather, turbulence and gusts,
three blades of three elements each in a wake that follows their thrust, a rotor with its generator and pitch
controller, the tower, and the heat of the generator. Callers pass in the random generators, and times are seconds after
the start: names, calendars and sensors belong to `momostream.datasets.wind`.

The file is long because the machine is one: constants, forces and motion are read side by side.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import types
from numpy.typing import NDArray

from momostream.kernels._compile import kernel, ro, rw

__all__ = ["SCENARIOS", "Event", "Scenario", "Site", "Timeline", "Turbine", "Weather", "lagging_blade"]

f8 = types.f8
Array = NDArray[np.float64]

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
# Share of an eddy's wind that is left after averaging over the rotor: little of eddies that are small beside it.
EDDY_ON_ROTOR = 1 / np.sqrt(1 + (0.5 * ROTOR_RADIUS / EDDY_LENGTHS) ** 2)
# The rest appears as differences across the rotor, half from top to bottom, half from side to side.
GRADIENT_LENGTH = 0.5 * ROTOR_RADIUS
GRADIENT_SHARE = math.sqrt(0.5 * np.sum(EDDY_SHARES**2 * (1 - EDDY_ON_ROTOR**2)))
N_NORMALS = len(EDDY_LENGTHS) + 2
EDDY_STEPS = 10  # the mean wind, which sets how fast eddies pass, hardly moves within this many steps
LEAST_WIND = 0.3
MOST_WIND = 32.0

HOUR = 3600.0
DAY = 24 * HOUR
KNOT_SECONDS = 60.0
KNOTS = 1440  # a day of weather is drawn at once
# First-order processes at the knots, time constants (s) and standard deviations: the weather's and the hour's log wind,
# direction (rad), temperature (K).
WANDER_SECONDS = np.array([36000.0, 2400.0, 21600.0, 43200.0])
WANDER_STDS = np.array([0.28, 0.07, 0.5, 3.0])
MEAN_DIRECTION = 4.2
MEAN_TEMPERATURE, ICING_TEMPERATURE = 10.0, -4.0

# --- weather --------------------------------------------------------------------------------------


class Site(NamedTuple):
    """Position of a turbine in its farm, and how it differs from its neighbours."""

    number: int = 0
    position: tuple[float, float] = (0.0, 0.0)
    reach: float = 0.0  # m from the middle of the farm to its edge
    speed_up: float = 1.0
    lift: float = 1.0
    heat: float = 1.0


@kernel(types.void(ro(2), ro(1), ro(1), rw(1), rw(2)))
def _wander(normals: Array, decays: Array, stds: Array, state: Array, out: Array) -> None:
    """Continue first-order processes, one per column, from `state`, which is overwritten."""
    for i in range(out.shape[0]):
        for k in range(out.shape[1]):
            kick = stds[k] * math.sqrt(1.0 - decays[k] ** 2)
            state[k] = decays[k] * state[k] + kick * normals[i, k]
            out[i, k] = state[k]


class Weather:
    """Mean wind and temperature at a site, from one region's weather that travels with the wind.

    Parameters
    ----------
    rng
        Of the region: the same for all its sites.
    site
        The turbine that sees the weather.
    mean_wind
        Long-term mean at hub height, m/s.
    icing
        Whether it is cold enough for ice.
    second_of_day
        At time 0, for the daily cycle.
    """

    def __init__(
        self, rng: np.random.Generator, site: Site, mean_wind: float, icing: bool, second_of_day: float
    ) -> None:
        self._rng = rng
        self._site = site
        self._mean_wind = mean_wind
        self._mean_temperature = ICING_TEMPERATURE if icing else MEAN_TEMPERATURE
        self._second_of_day = second_of_day
        self._state = np.zeros(len(WANDER_SECONDS))
        # From before the first row: the wind at the far edge of a farm has passed the near edge earlier.
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
        _wander(self._rng.standard_normal(knots.shape), decays, WANDER_STDS, self._state, knots)
        warmth = np.cos(2 * math.pi * (times + self._second_of_day - 15 * HOUR) / DAY)
        # The mean of a log-normal wind is above exp(mean of its log).
        log_wind = knots[:, 0] + knots[:, 1] - 0.5 * np.sum(WANDER_STDS[:2] ** 2)
        wind = np.clip(self._mean_wind * (1 + 0.1 * warmth) * np.exp(log_wind), 1.0, MOST_WIND)
        return times, wind, MEAN_DIRECTION + knots[:, 2], self._mean_temperature + 5 * warmth + knots[:, 3]


# --- events ---------------------------------------------------------------------------------------


class Event(NamedTuple):
    """A gust, a fault or another change that a turbine has for a while."""

    start: float  # s after the start of the feed
    end: float
    kind: str
    size: float  # uniform in [0, 1)

    def level(self, times: Array, ramp: float) -> Array:
        """Rise to 1 within `ramp` seconds, and back before the end."""
        ramp = min(ramp, 0.5 * (self.end - self.start))
        return np.interp(times, [self.start, self.start + ramp, self.end - ramp, self.end], [0, 1, 1, 0])


class Scenario(NamedTuple):
    """Kinds of events, how often they happen and for how long."""

    kinds: tuple[str, ...]
    gap: float  # mean time between events, s
    shortest: float  # duration, s
    longest: float


SCENARIOS = {
    "gusts": Scenario(("gust",), 1 * HOUR, 10.0, 14.0),
    "icing": Scenario(("icing",), 10 * HOUR, 2 * HOUR, 6 * HOUR),
    "faults": Scenario(("pitch_lag", "bearing_wear"), 6 * HOUR, 1 * HOUR, 4 * HOUR),
    "regimes": Scenario(("curtailment", "derating", "new_controller"), 4 * HOUR, 1 * HOUR, 6 * HOUR),
}


class Timeline:
    """The events of one scenario, one after another, without end.

    Parameters
    ----------
    rng
        Of this scenario alone.
    scenario
        The kinds of events, and how often they happen.
    """

    def __init__(self, rng: np.random.Generator, scenario: Scenario) -> None:
        self._rng = rng
        self._scenario = scenario
        self._events = [self._after(0.0)]

    def _after(self, time: float) -> Event:
        scenario, rng = self._scenario, self._rng
        start = time + scenario.gap * (0.5 + rng.exponential(0.5))
        end = start + rng.uniform(scenario.shortest, scenario.longest)
        return Event(start, end, scenario.kinds[rng.integers(len(scenario.kinds))], rng.random())

    def between(self, start: float, end: float) -> list[Event]:
        """Events that touch an interval; those that end before it are forgotten."""
        while self._events[-1].start < end:
            self._events.append(self._after(self._events[-1].end))
        self._events = [event for event in self._events if event.end > start]
        return [event for event in self._events if event.start < end]


def _gust_shapes(times: Array, events: list[Event]) -> Array:
    """Wind of the gusts, in standard deviations of the turbulence: a dip, the rise, a dip."""
    out = np.zeros(len(times))
    for event in events:
        now = slice(*np.searchsorted(times, [event.start, event.end]))
        phase = (times[now] - event.start) / (event.end - event.start)
        out[now] = -0.37 * (2 + 2 * event.size) * np.sin(3 * math.pi * phase) * (1 - np.cos(2 * math.pi * phase))
    return out


def lagging_blade(event: Event) -> int:
    """Return the blade, from 0 on, whose pitch lags in an event of that kind."""
    return int(3 * event.size)


def _conditions(times: Array, ambient: Array, events: list[Event]) -> Array:
    """Ambient temperature and effects of events by row, as `_simulate` takes them."""
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
            out[now, LAGGING] = lagging_blade(event)
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


# --- motion ---------------------------------------------------------------------------------------

# Indices into the arrays of `_simulate`: its state, then its conditions.
SPEED, AZIMUTH, SWAY, SWAY_RATE, INTEGRAL, RUNNING, MINUTE_WIND, HEAT = range(8)
AMBIENT, ICE, LAGGING, WEAR, POWER_SHARE, SPEED_SHARE, TORQUE_SHARE, FINE_PITCH = range(8)
N_READINGS = 14


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


# One long function: its parts share a dozen local values of the same step, in the order in which they act on each
# other, and handing these from function to function would hide the physics without making any part reusable.
@kernel(
    types.void(*[ro(1)] * 2, *[ro(2)] * 2, *[ro(1)] * 2, f8, types.i8, types.b1, *[rw(1)] * 4, *[rw(2)] * 2),
    reassociate=False,
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
    scratch: Array,
    out: Array,
) -> None:
    """Integrate the turbine over a block of rows, `n_steps` steps of `dt` seconds each.

    `mean_wind`, `gusts` and the rows of `normals` go by step; `conditions` and `out` by row. `tower` is the exact
    transition of the free tower over a step, `site` holds turbulence intensity, lift and heat. `state`, `pitches`,
    `wake` and `eddies` are overwritten by their values at the end, `scratch` by anything. A row of `out` is its last
    step, or the mean of its steps if `averaged`.
    """
    turbulence, lift, heat = site[0], site[1], site[2]
    n_eddies = EDDY_LENGTHS.shape[0]
    decays, kicks, torques, sines, cosines = scratch[0], scratch[1], scratch[2], scratch[3], scratch[4]
    thrusts = scratch[5:]  # by blade and element
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


def _tower_step(dt: float) -> Array:
    """Transition of bend and its rate over `dt` seconds of the free tower, by rows."""
    natural = 2 * math.pi * TOWER_FREQUENCY
    decay, frequency = TOWER_DAMPING * natural, natural * math.sqrt(1 - TOWER_DAMPING**2)
    sine, cosine = math.sin(frequency * dt) / frequency, math.cos(frequency * dt)
    step = [cosine + decay * sine, sine, -(natural**2) * sine, cosine - decay * sine]
    return math.exp(-decay * dt) * np.array(step)


def _settled(wind: float, ambient: float, rng: np.random.Generator) -> Array:
    """Approximate state of a turbine in a steady wind."""
    state = np.zeros(8)
    state[SPEED] = min(DESIGN_RATIO * wind / ROTOR_RADIUS, RATED_SPEED)
    state[AZIMUTH] = rng.uniform(0, 2 * math.pi)
    state[RUNNING] = CUT_IN_AGAIN < wind < CUT_OUT
    state[MINUTE_WIND] = wind
    state[HEAT] = ambient + HEAT_RISE * TORQUE_GAIN * state[SPEED] ** 3 / RATED_POWER
    return state


class Turbine:
    """A turbine in motion: each run continues from the end of the last one.

    Parameters
    ----------
    site
        Its position, and how it differs from others.
    turbulence
        Intensity: standard deviation as a share of the mean wind.
    wind, ambient
        Mean wind (m/s) and temperature (degC) in which it has settled before the first run.
    dt
        Seconds of a step.
    n_steps
        Steps of a row.
    averaged
        Whether a row is the mean of its steps; else it is the last of them.
    rng
        Of the turbulence.

    Examples
    --------
    Ten minutes of a steady wind, a row per second:

    >>> import numpy as np
    >>> from momostream.datasets.turbine import Site, Turbine
    >>> rng = np.random.default_rng(0)
    >>> turbine = Turbine(Site(), 0.0, wind=8.0, ambient=10.0, dt=0.1, n_steps=10, averaged=False, rng=rng)
    >>> times = 0.1 * np.arange(1, 6001)
    >>> rows = turbine.run(times, np.full(6000, 8.0), np.full(6000, 10.0), gusts=[], events=[])
    >>> rows.shape
    (600, 14)
    >>> wind, rotor_speed, pitch = rows[-1, :3].round(1).tolist()
    >>> wind, rotor_speed, pitch
    (8.0, 9.2, 0.0)
    """

    def __init__(
        self,
        site: Site,
        turbulence: float,
        wind: float,
        ambient: float,
        dt: float,
        n_steps: int,
        averaged: bool,
        rng: np.random.Generator,
    ) -> None:
        self._site = np.array([turbulence, site.lift, site.heat])
        self._dt, self._n_steps, self._averaged = dt, n_steps, averaged
        self._tower = _tower_step(dt)
        self._rng = rng
        self._state = _settled(wind, ambient, rng)
        self._pitches, self._wake, self._eddies = np.zeros(3), np.full(3, 0.3 * wind), rng.standard_normal(N_NORMALS)

    def run(self, times: Array, wind: Array, ambient: Array, gusts: list[Event], events: list[Event]) -> Array:
        """Simulate the steps of some rows.

        Parameters
        ----------
        times, wind, ambient : ndarray of shape (n_rows * n_steps,)
            Ends of the steps in seconds, mean wind and temperature there.
        gusts, events
            Events that fall into these steps.

        Returns
        -------
        ndarray of shape (n_rows, 14)
            Wind (m/s), rotor speed (rpm), pitch (deg), sine and cosine of the azimuth, power (kW), acceleration of the
            tower (m/s^2), temperature of the generator (degC), three flapwise and three edgewise moments (kN m).
        """
        ends = slice(self._n_steps - 1, None, self._n_steps)
        out = np.empty((len(times) // self._n_steps, N_READINGS))
        _simulate(
            wind,
            _gust_shapes(times, gusts),
            self._rng.standard_normal((len(times), N_NORMALS)),
            _conditions(times[ends], ambient[ends], events),
            self._tower,
            self._site,
            self._dt,
            self._n_steps,
            self._averaged,
            self._state,
            self._pitches,
            self._wake,
            self._eddies,
            np.empty((8, len(EDDY_LENGTHS) + 2)),
            out,
        )
        return out
