"""Simulated feeds: a wind turbine without end, and a farm of them under one weather.

`momostream.datasets.turbine` simulates the readings; this module adds names, units, timestamps, and sensors with noise
and failures. Random numbers are drawn in blocks of fixed length, each purpose from a generator of its own: rows do not
depend on how they are read, and switching one option on leaves the random events of the others as they were.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass, field
from datetime import datetime
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from numba import types
from numpy.typing import NDArray

from momostream.datasets.turbine import SCENARIOS, Site, Timeline, Turbine, Weather, lagging_blade
from momostream.kernels._compile import kernel, ro, rw

__all__ = ["WindFarm", "WindTurbine"]

f8 = types.f8
Array = NDArray[np.float64]
Flags = NDArray[np.bool_]
Pair = tuple[dict[str, Any], dict[str, float]]

BLOCK_STEPS = 40_000
FINE_STEP, COARSE_STEP = 0.1, 1.0  # s, at most
COARSE_INTERVAL = 10.0  # s between rows, above which steps are coarse
LEAD_SECONDS = 300.0  # run before the first row, so that no transient is seen
DROPOUT_ROWS, STUCK_ROWS = 10, 60  # mean length of a burst
SPACING = 880.0  # m between the turbines of a farm

# The channel that an event affects most.
SHOWS_IN = {
    "icing": "power",
    "bearing_wear": "generator_temperature",
    "curtailment": "power",
    "derating": "rotor_speed",
    "new_controller": "rotor_speed",
}
# The index of a purpose is part of its seed: append new ones at the end.
PURPOSES = ("weather", "site", "turbulence", "noise", "dropouts", "stuck", "gusts", "icing", "faults", "regimes")


def _generator(seed: int, number: int, purpose: str) -> np.random.Generator:
    return np.random.default_rng([seed, number, PURPOSES.index(purpose)])


@kernel(types.void(ro(2), f8, f8, rw(1, types.b1), rw(2, types.b1)))
def _bursts(uniforms: Array, begins: float, ends: float, state: Flags, out: Flags) -> None:
    """Switch each column on and off with these probabilities per row, starting from `state`, which is overwritten."""
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
        Whether there are faults: the pitch actuator of one blade lags and is offset, a bearing wears and heats up.
    regimes
        Whether the operation changes: curtailed power, derated speed, another controller after maintenance.
    start
        Naive timestamp of the first row.
    time
        Key of the timestamp in ``x`` and name of the index of frames. None: no timestamps, and frames count their rows.

    Examples
    --------
    >>> from momostream.datasets.wind import WindTurbine
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

    Episodes are known to the second, as ground truth for detectors:

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
    _site: Site = field(default=Site(), init=False, repr=False)

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
        """Describe the feed in a sentence."""
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
        """Iterate without end over consecutive frames of `size` rows each.

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
        """Faults, icing and other episodes during the first `n` rows: the ground truth for detectors.

        Parameters
        ----------
        n
            Rows.

        Returns
        -------
        pandas.DataFrame
            By start, a row per episode: ``start``, ``end`` (the first moment after it; it can lie after these rows),
            ``kind`` (``icing``, ``pitch_lag``, ``bearing_wear``, ``curtailment``, ``derating``,
            ``new_controller``, ``stuck``) and ``channel``, the one that it affects most. Dropouts are not listed: the
            readings are missing.
        """
        rows: list[tuple[float, float, str, str]] = []
        for timeline in self._timelines().values():
            for event in timeline.between(0.0, n / self.rate):
                shows = f"flap_{lagging_blade(event) + 1}" if event.kind == "pitch_lag" else SHOWS_IN[event.kind]
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
        """First row, row after the last, and name of each channel that is stuck."""
        if not self.stuck:
            return []
        n_lead = self._steps()[2]
        bursts = self._bursts("stuck")
        # Some more rows, so that a channel that is stuck at the end gets its own end: hardly any is for so long.
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

    def _timelines(self) -> dict[str, Timeline]:
        """Events of the options that are switched on."""
        return {
            name: Timeline(self._rng(name), SCENARIOS[name])
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
        """Blocks of sensor readings, from row `first` on."""
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
        """Blocks of true values, from row `first` on."""
        interval = 1 / self.rate
        dt = interval / n_steps
        midnight = self.start.replace(hour=0, minute=0, second=0, microsecond=0)
        # One weather for all turbines of a farm: it does not depend on the number of the site.
        rng = _generator(self.seed, 0, "weather")
        weather = Weather(rng, self._site, self.mean_wind, self.icing, (self.start - midnight).total_seconds())
        gusts = Timeline(self._rng("gusts"), SCENARIOS["gusts"])
        timelines = self._timelines()
        steps = dt * np.arange(1, n_rows * n_steps + 1, dtype=np.float64)
        wind, ambient = weather.at(np.array([(first - 1) * interval]))
        turbine = Turbine(
            self._site,
            self.turbulence,
            wind=float(wind[0]),
            ambient=float(ambient[0]),
            dt=dt,
            n_steps=n_steps,
            averaged=self.rate < 1,
            rng=self._rng("turbulence"),
        )
        while True:
            times = (first - 1) * interval + steps
            wind, ambient = weather.at(times)
            events = [event for line in timelines.values() for event in line.between(times[0], times[-1])]
            yield turbine.run(times, wind, ambient, gusts.between(times[0], times[-1]), events)
            first += n_rows


def _present(readings: dict[str, Any]) -> dict[str, Any]:
    # NaN is the one value that differs from itself.
    return {key: value for key, value in readings.items() if value == value}


class WindFarm:
    """Several simulated turbines in one weather: an endless, seeded feed of rows by turbine.

    Mean wind and temperature travel over the farm with the wind, so that a turbine sees the weather of those
    upstream a little later. Turbulence, gusts, sensors and failures are each turbine's own; the turbines differ a
    little.

    Parameters
    ----------
    n_turbines
        Number of turbines.
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
    >>> from momostream.datasets.wind import WindFarm
    >>> farm = WindFarm(3, seed=0)
    >>> [key for key, x, y in farm.take(4)]
    ['T01', 'T02', 'T03', 'T01']

    A turbine on its own gives the rows that it gives within the farm:

    >>> farm["T02"].frame(1000).shape
    (1000, 14)
    """

    def __init__(self, n_turbines: int, seed: int = 0, **options: Any) -> None:
        if isinstance(n_turbines, bool) or not isinstance(n_turbines, int | np.integer) or n_turbines < 1:
            raise ValueError(f"n_turbines={n_turbines!r} is not accepted: use a whole number of at least 1")
        n_columns = math.ceil(math.sqrt(n_turbines))
        positions = np.array([divmod(i, n_columns) for i in range(n_turbines)], dtype=float)
        positions = SPACING * (positions - positions.mean(axis=0))
        reach = float(np.hypot(*positions.T).max())
        width = max(2, len(str(n_turbines)))
        self._turbines: dict[str, WindTurbine] = {}
        for number, (north, east) in enumerate(positions.tolist(), 1):
            turbine = WindTurbine(seed, **options)
            speed_up, lift, heat = 1 + _generator(seed, number, "site").uniform(-1, 1, 3) * (0.03, 0.02, 0.08)
            turbine._site = Site(number, (east, north), reach, float(speed_up), float(lift), float(heat))
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
