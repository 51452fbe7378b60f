"""The real data sets, which are not part of the package.

They lie in the folder that the environment variable ``MOMOSTREAM_DATA`` names, by default ``../shared/data`` beside the
repository, as gzipped CSV files with a ``columns.json`` that names inputs and targets of each set.

    python -m benchmarks.data [--page]

compares the files of the folder with those that are known, and says which are missing or others. Sources, sizes and
checksums are kept in ``benchmarks/data.json``; ``--page`` writes ``benchmarks/DATA.md`` from it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

Array = NDArray[np.float64]

ROOT = Path(__file__).resolve().parents[1]
KNOWN, PAGE = ROOT / "benchmarks" / "data.json", ROOT / "benchmarks" / "DATA.md"


# Lags and hour of day of one feed as inputs: a name of its own, beside those of the files.
LAGGED = {"etth1_lags": "etth1"}


class Case(NamedTuple):
    """A task of forecasting a file: ``kinds`` of columns but not ``without``, ``horizons`` and ``season`` in rows.

    Rows are every ``step``-th from ``first`` on, ``rows`` of them; ``file`` is the data set, by default that of the
    case's name. ``columns`` are the series if not all of these kinds are, and ``known`` are inputs whose future every
    model is given.
    """

    kinds: tuple[str, ...]
    horizons: tuple[int, ...]
    season: int | None
    rows: int
    without: tuple[str, ...] = ()
    first: int = 0
    step: int = 1
    file: str | None = None
    columns: tuple[str, ...] = ()
    known: tuple[str, ...] = ()


_BOTH, _TARGETS = ("inputs", "targets"), ("targets",)
_BIKE_INPUTS = ("holiday", "workingday", "temp", "hum", "windspeed")
_JENA = ("pressure", "temp", "rh", "wind", "swdr")
_JENA_SPRING = ("temp", "rh", "vp_def", "wind", "wind_max", "swdr", "par", "co2")
_LOADS = ("Wind1VelX_mps", "BldPitch1_deg", "RotSpeed_rpm", "RootMyb1_kNm", "TwrBsMyt_kNm", "OoPDefl1_m")
_ZONES = ("temperature_c", "zone1_kw", "zone2_kw", "zone3_kw")
_SITES = ("pm25_aotizhongxin", "pm25_changping", "pm25_dongsi", "pm25_gucheng", "pm25_huairou", "pm25_wanliu")
_AIR = ("co", "c6h6", "nox", "s5_o3", "temp", "rh")
_GAS = ("AT", "AP", "TIT", "TEY", "CO", "NOX")
_JOINTS = ("q1", "q2", "q3", "qd1", "qd2", "qd3")

# Horizons reach from one step to a day. Long feeds come a second time with another season. At most eight series, so
# that rivals with a model for each step and series stay affordable; the oldest cases have more. A feed with a season
# has dates.
FORECASTS = {
    # Feeds of the choosing half.
    "etth1": Case(_TARGETS, (1, 6, 24), 24, 4000),
    "etth1_winter": Case(_TARGETS, (12,), 24, 4000, first=12000, file="etth1"),
    "turkey_wind_scada": Case(_BOTH, (6, 36), 144, 4000, without=("wind_direction_deg",)),
    "turkey_wind_scada_autumn": Case(
        _BOTH, (24,), 144, 4000, without=("wind_direction_deg",), first=36000, file="turkey_wind_scada"
    ),
    "jena_weather": Case(_TARGETS, (36,), 144, 4000, columns=_JENA),
    "jena_weather_spring": Case(_TARGETS, (6,), 144, 4000, first=13000, file="jena_weather", columns=_JENA_SPRING),
    "bike_hourly": Case(_TARGETS, (24,), 24, 4000, first=2500, known=_BIKE_INPUTS),
    "bike_hourly_summer": Case(_TARGETS, (6,), 24, 4000, first=11000, file="bike_hourly", known=_BIKE_INPUTS),
    # The simulation starts with a transient.
    "openfast_5mw_land_wturb": Case(_BOTH, (20,), None, 3600, first=1600, step=2),
    "openfast_loads": Case(_BOTH, (16,), None, 4000, first=1600, file="openfast_5mw_land_wturb", columns=_LOADS),
    "skab_valve1": Case(_TARGETS, (10,), None, 4000),
    "beijing_pm25_12sites": Case(_TARGETS, (6,), 24, 4000),
    "beijing_winter": Case(_TARGETS, (24,), 24, 4000, first=15000, file="beijing_pm25_12sites", columns=_SITES),
    # Feeds of the reporting half.
    "etth2": Case(_TARGETS, (24,), 24, 4000),
    "etth2_winter": Case(_TARGETS, (6,), 24, 4000, first=12000, file="etth2"),
    "tetouan_power": Case(_TARGETS, (6, 144), 144, 4000),
    "tetouan_power_summer": Case(_BOTH, (36,), 144, 4000, first=26000, file="tetouan_power", columns=_ZONES),
    "windturbine": Case(_BOTH, (10,), None, 3600),
    "air_quality": Case(_TARGETS, (24,), 24, 4000, columns=_AIR),
    "air_quality_winter": Case(_TARGETS, (6,), 24, 4000, first=5300, file="air_quality", columns=_AIR),
    "exchange_rate": Case(_TARGETS, (1,), None, 4000),
    "exchange_rate_late": Case(_TARGETS, (10,), None, 3588, first=4000, file="exchange_rate"),
    "gas_turbine": Case(_BOTH, (6,), None, 4000, columns=_GAS),
    "gas_turbine_late": Case(_BOTH, (24,), None, 4000, first=20000, file="gas_turbine", columns=_GAS),
    "schunk_robot_arm": Case(_TARGETS, (10,), None, 4000, columns=_JOINTS),
    "schunk_robot_arm_late": Case(_TARGETS, (1,), None, 4000, first=30000, file="schunk_robot_arm", columns=_JOINTS),
}
# Defaults are chosen by the first half; the second is looked at for the results file only. Feeds are split, not cases,
# because a second season of a feed is not a feed that nobody has tuned to. Both halves have a transformer, weather or
# air with gaps, hourly and 10-minute calendars, a wind turbine, a simulator, and machines without a calendar.
HALVES = {
    "choosing": (
        "etth1",
        "jena_weather",
        "turkey_wind_scada",
        "bike_hourly",
        "openfast_5mw_land_wturb",
        "skab_valve1",
        "beijing_pm25_12sites",
    ),
    "reporting": (
        "etth2",
        "tetouan_power",
        "windturbine",
        "air_quality",
        "exchange_rate",
        "gas_turbine",
        "schunk_robot_arm",
    ),
}
# Rows by which the series to forecast are standardised.
SCALED_BY = 500


class Split(NamedTuple):
    """Training and test rows, columns standardised by the training rows."""

    X: Array
    Y: Array
    X_test: Array
    Y_test: Array


class Feed(NamedTuple):
    """Rows in order of arrival, columns standardised by these rows."""

    X: Array
    Y: Array


class Series(NamedTuple):
    """Series to forecast, one column each, in order of arrival; NaN where a value is missing.

    ``times`` are those of the rows where the file has dates, else None. The rows are then one step of the clock apart:
    a row that the file does not have consists of missing values. ``X`` holds the ``inputs`` that are known in advance,
    complete, one column each.
    """

    names: list[str]
    Y: Array
    times: pd.DatetimeIndex | None
    inputs: list[str]
    X: Array


def folder() -> Path:
    """The folder of the data sets; exits with a message if they are not there."""
    path = Path(os.environ.get("MOMOSTREAM_DATA", ROOT.parent / "shared" / "data"))
    if not (path / "columns.json").is_file():
        raise SystemExit(f"no data sets in {path}: set MOMOSTREAM_DATA to the folder that holds columns.json")
    return path


def about() -> dict[str, Any]:
    """The contents of ``columns.json``, by set."""
    described: dict[str, Any] = json.loads((folder() / "columns.json").read_text())
    return described


def read(name: str) -> tuple[pd.DataFrame, list[str], list[str]]:
    """A data set as it is in the file, with the names of its inputs and targets."""
    described = about()[name]
    return pd.read_csv(folder() / described["file"]), described["inputs"], described["targets"]


def feeds() -> dict[str, int]:
    """Names of all feeds, with the rows of their files."""
    lengths = {name: described["rows"] for name, described in about().items()}
    return lengths | {name: lengths[source] for name, source in LAGGED.items()}


def stream(name: str, rows: int) -> Feed:
    """The first rows of a file as a feed: numeric inputs, gaps filled forward, constant columns left out.

    A set without inputs has the previous row as input; a set of `LAGGED` the rows 1 and 24 steps before and sine and
    cosine of the hour. These feeds are shorter by the rows that have no such past.
    """
    frame, inputs, targets = read(LAGGED.get(name, name))
    frame = frame.iloc[:rows]
    X, Y = filled(frame[inputs].select_dtypes("number")), filled(frame[targets])
    if name in LAGGED:
        hour = pd.to_datetime(frame[about()[LAGGED[name]]["time"]]).dt.hour.to_numpy(float)[24:]
        angle = 2.0 * np.pi * hour / 24.0
        X, Y = np.column_stack([Y[23:-1], Y[:-24], np.sin(angle), np.cos(angle)]), Y[24:]
    elif not X.size:
        X, Y = Y[:-1], Y[1:]
    X, Y = (A[:, A.std(axis=0) > 0.0] for A in (X, Y))
    return Feed(*((A - A.mean(axis=0)) / A.std(axis=0) for A in (X, Y)))


def half_of(case: str) -> str:
    """The half that a case of `FORECASTS` belongs to.

    Examples
    --------
    >>> half_of("etth1_winter"), half_of("etth2")
    ('choosing', 'reporting')
    """
    file = FORECASTS[case].file or case
    return next(half for half, files in HALVES.items() if file in files)


def series(name: str, rows: int) -> Series:
    """The first rows of a case of `FORECASTS`, standardised by the known values of the first `SCALED_BY` of them.

    A series that is constant there is scaled by all rows, and left out if it is constant in these as well. Inputs keep
    their last value in rows that the file does not have.
    """
    case = FORECASTS[name]
    file = case.file or name
    frame, inputs, targets = read(file)
    kinds = {"inputs": inputs, "targets": targets}
    names = [column for kind in case.kinds for column in kinds[kind] if column not in case.without]
    names = [column for column in names if not case.columns or column in case.columns]
    frame = frame.iloc[case.first :: case.step].iloc[:rows]
    times = None
    # Seasons are known where there are dates; other clocks count seconds of a simulation.
    if case.season is not None:
        frame = on_the_clock(frame.set_index(pd.DatetimeIndex(pd.to_datetime(frame[about()[file]["time"]])))).iloc[
            :rows
        ]
        times = pd.DatetimeIndex(frame.index)
    known = list(case.known)
    frame[known] = frame[known].ffill()
    frame = frame[names + known].astype(float)
    # Not by the deviation: that of a constant is not exactly zero.
    frame = frame.loc[:, frame.max() > frame.min()]
    head = frame.iloc[:SCALED_BY]
    deviation = np.where(head.max() > head.min(), head.std(ddof=0), frame.std(ddof=0))
    Z = (frame.to_numpy() - head.mean().to_numpy()) / deviation
    kept = [column for column in frame.columns if column in names]
    Y, X = np.ascontiguousarray(Z[:, : len(kept)]), np.ascontiguousarray(Z[:, len(kept) :])
    return Series(kept, Y, times, list(frame.columns[len(kept) :]), X)


def on_the_clock(frame: pd.DataFrame) -> pd.DataFrame:
    """Rows one median step of their dates apart; missing where there is none, the first of those with the same date.

    Examples
    --------
    >>> hours = pd.DatetimeIndex(["2024-01-01 00:00", "2024-01-01 01:00", "2024-01-01 02:00", "2024-01-01 04:00"])
    >>> on_the_clock(pd.DataFrame({"a": [1.0, 2.0, 3.0, 5.0]}, index=hours))["a"].tolist()
    [1.0, 2.0, 3.0, nan, 5.0]
    """
    frame = frame[~frame.index.duplicated()]
    step = frame.index.to_series().diff().median()
    return frame.reindex(pd.date_range(frame.index[0], frame.index[-1], freq=step))


def forward_filled(Y: Array) -> Array:
    """Gaps take the value before them, those at the start 0: the mean, as the series are standardised.

    Examples
    --------
    >>> forward_filled(np.array([[np.nan], [1.0], [np.nan]])).tolist()
    [[0.0], [1.0], [1.0]]
    """
    return pd.DataFrame(Y).ffill().fillna(0.0).to_numpy()


def filled(frame: pd.DataFrame) -> Array:
    """Gaps take the value before them, those at the start the first value."""
    return frame.astype(float).ffill().bfill().to_numpy()


def paper_split(name: str) -> Split:
    """The paper's random split; scm20d also has its inputs reduced to 30 principal components of the training rows."""
    frame, inputs, targets = read(name)
    train, test = frame[frame["split"] == "train"], frame[frame["split"] == "test"]
    split = standardised(train[inputs], train[targets], test[inputs], test[targets])
    if name == "scm20d":
        _, _, axes = np.linalg.svd(split.X, full_matrices=False)
        split = split._replace(X=split.X @ axes[:30].T, X_test=split.X_test @ axes[:30].T)
    return split


def time_split(name: str, kind: str) -> Split:
    """Windturbine cut in time: ``"gaps"`` (every fifth block of 250 rows) or ``"end"`` (the last fifth) is the test."""
    frame, inputs, targets = read(name)
    frame = frame.iloc[1:]
    row = np.arange(len(frame))
    held = (row // 250) % 5 == 2 if kind == "gaps" else row >= len(frame) * 4 // 5
    train, test = frame[~held], frame[held]
    return standardised(train[inputs], train[targets], test[inputs], test[targets])


def standardised(X: pd.DataFrame, Y: pd.DataFrame, X_test: pd.DataFrame, Y_test: pd.DataFrame) -> Split:
    """Centre and scale by the training rows."""
    x, y = X.to_numpy(float), Y.to_numpy(float)
    x_mean, x_std, y_mean, y_std = x.mean(axis=0), x.std(axis=0), y.mean(axis=0), y.std(axis=0)
    return Split(
        (x - x_mean) / x_std,
        (y - y_mean) / y_std,
        (X_test.to_numpy(float) - x_mean) / x_std,
        (Y_test.to_numpy(float) - y_mean) / y_std,
    )


def simulated(n_rows: int, n_inputs: int, n_targets: int, n_test: int = 2000, seed: int = 0) -> Split:
    """A smooth nonlinear map with correlated noise, for questions of cost."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows + n_test, n_inputs))
    hidden = np.sin(X @ rng.normal(size=(n_inputs, 20)) / np.sqrt(n_inputs))
    noise = rng.normal(size=(len(X), n_targets)) @ rng.normal(size=(n_targets, n_targets)) / np.sqrt(n_targets)
    Y = hidden @ rng.normal(size=(20, n_targets)) / 3.0 + 0.5 * noise
    return Split(X[:n_rows], Y[:n_rows], X[n_rows:], Y[n_rows:])


# ---------------------------------------------------------------------- which files they are


def known() -> dict[str, dict[str, Any]]:
    """Of each set its file, where that comes from, how it was made, its size and checksum."""
    described: dict[str, dict[str, Any]] = json.loads(KNOWN.read_text(encoding="utf-8"))
    return described


def checked(folder: Path, sets: dict[str, dict[str, Any]]) -> dict[str, str]:
    """For each set ``"ok"``, ``"missing"``, or ``"another file"`` than the one that is known."""
    found = {}
    for name, described in sets.items():
        path = folder / described["file"]
        if not path.is_file():
            found[name] = "missing"
        elif hashlib.sha256(path.read_bytes()).hexdigest() != described["sha256"]:
            found[name] = "another file"
        else:
            found[name] = "ok"
    return found


def page(sets: dict[str, dict[str, Any]]) -> str:
    """The page about the data sets, as markdown."""
    parts = [
        "# The data behind the benchmarks",
        "The sets are not part of the repository. Benchmarks look for them in the folder that the environment variable "
        "`MOMOSTREAM_DATA` names, by default `../shared/data` beside the repository. Each is a gzipped CSV file with "
        "one header row, an empty cell is a missing value, and `columns.json` in the same folder names time, inputs "
        "and targets. `python -m benchmarks.data` compares the files with the checksums below. Licences are as stated "
        "beside the files: read them at the source before you pass one on.",
        "Written by `python -m benchmarks.data --page` from `benchmarks/data.json`.",
    ]
    for name, described in sets.items():
        facts = {
            "source": described["source"],
            "licence": described["licence"],
            "rows": f"{described['rows']:,}, {described['inputs']} inputs, {described['targets']} targets",
            "made": described["made"],
            "file": f"`{described['file']}`, {described['bytes']:,} bytes",
            "SHA-256": f"`{described['sha256']}`",
        }
        parts += [f"## {name}", "\n".join(f"- {fact}: {value}" for fact, value in facts.items())]
    return "\n\n".join(parts) + "\n"


def main() -> None:
    """Check the folder, or write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--page", action="store_true", help="write DATA.md")
    if parser.parse_args().page:
        PAGE.write_text(page(known()), encoding="utf-8")
        return
    found = checked(folder(), known())
    for name, word in found.items():
        print(f"{name:24} {word}")
    if set(found.values()) != {"ok"}:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
