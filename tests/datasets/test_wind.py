"""The simulated turbine: reproducible, physical, and troubled where it is asked to be."""

from __future__ import annotations

import collections
import itertools
import math
import subprocess
import sys
import time
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from pandas.testing import assert_frame_equal
from scipy import signal

from momostream.datasets.wind import WindFarm, WindTurbine

CHANNELS = [*WindTurbine.INPUTS, *WindTurbine.TARGETS]
FLAPS, EDGES = list(WindTurbine.TARGETS[:3]), list(WindTurbine.TARGETS[3:])
TROUBLES = {"dropouts": 0.05, "stuck": 0.05, "icing": True, "faults": True, "regimes": True}


@pytest.fixture(scope="module")
def breeze():
    """Four and a half hours at 4 Hz around 9 m/s, without sensor noise."""
    return WindTurbine(seed=0, rate=4, noise=0).frame(2**16)


@pytest.fixture(scope="module")
def month():
    """Ten-minute rows over a month of much and little wind."""
    return WindTurbine(seed=0, rate=1 / 600, mean_wind=10).frame(30 * 144)


# --- the interface --------------------------------------------------------------------------------


def test_pairs_are_dicts_of_floats_with_the_time():
    pairs = list(WindTurbine(seed=0).take(3))
    for i, (x, y) in enumerate(pairs):
        assert list(x) == ["time", *WindTurbine.INPUTS]
        assert list(y) == list(WindTurbine.TARGETS)
        assert x["time"] == datetime(2025, 1, 1) + timedelta(seconds=i)
        assert type(x["time"]) is datetime
        assert all(type(value) is float for key, value in [*x.items(), *y.items()] if key != "time")


def test_time_can_be_renamed_and_switched_off():
    x, _ = next(iter(WindTurbine(time="at")))
    assert "at" in x and "time" not in x
    assert WindTurbine(time="at").frame(2).index.name == "at"
    x, _ = next(iter(WindTurbine(time=None)))
    assert list(x) == list(WindTurbine.INPUTS)
    first, second = itertools.islice(WindTurbine(time=None).chunks(3), 2)
    assert_array_equal(first.index, [0, 1, 2])
    assert_array_equal(second.index, [3, 4, 5])


def test_frame_has_a_time_index_and_all_channels():
    frame = WindTurbine(rate=3, start=datetime(2024, 2, 29, 23, 59, 59, 500_000)).frame(7)
    assert list(frame.columns) == CHANNELS
    assert isinstance(frame.index, pd.DatetimeIndex) and frame.index.name == "time"
    assert frame.index[0] == pd.Timestamp("2024-02-29 23:59:59.5")
    assert frame.index[3] == pd.Timestamp("2024-03-01 00:00:00.5")
    assert frame.index.is_monotonic_increasing


def test_description():
    turbine = WindTurbine()
    assert (turbine.n_features, turbine.n_outputs) == (8, 6)
    assert list(turbine.UNITS) == CHANNELS
    assert "simulated" in turbine.desc
    assert "rate=1.0" in repr(turbine) and "site" not in repr(turbine)


def test_models_learn_from_it():
    from momostream.estimators.regressor import MOMoGPRegressor

    model = MOMoGPRegressor(clock="time")
    for x, y in WindTurbine(dropouts=0.2).take(40):
        model.learn_one(x, y)
    assert set(model.predict_one(x)) == set(WindTurbine.TARGETS)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"seed": -1}, "seed=-1"),
        ({"seed": 1.5}, "seed=1.5"),
        ({"seed": None}, "seed=None"),
        ({"rate": 0}, "rate=0"),
        ({"rate": math.nan}, "rate=nan"),
        ({"rate": "fast"}, "rate='fast'"),
        ({"rate": math.inf}, "rate=inf"),
        ({"mean_wind": 0.0}, "mean_wind=0.0"),
        ({"turbulence": -0.1}, "turbulence=-0.1"),
        ({"noise": -1}, "noise=-1"),
        ({"dropouts": 1.0}, "dropouts=1.0"),
        ({"stuck": 0.95}, "stuck=0.95"),
        ({"icing": 1}, "icing=1"),
        ({"faults": "yes"}, "faults='yes'"),
        ({"regimes": None}, "regimes=None"),
        ({"start": "2025-01-01"}, "start='2025-01-01'"),
        ({"start": pd.Timestamp("2025-01-01", tz="UTC")}, "start="),
        ({"time": "power"}, "time='power'"),
        ({"time": 3}, "time=3"),
    ],
)
def test_bad_options_are_named(options, named):
    with pytest.raises(ValueError, match="is not accepted") as caught:
        WindTurbine(**options)
    assert str(caught.value).startswith(named)


def test_bad_calls_are_refused():
    with pytest.raises(TypeError):
        WindTurbine(0, 1.0)  # options by name only
    for call in (WindTurbine().frame, WindTurbine().chunks):
        with pytest.raises(ValueError, match="at least 1"):
            call(0)
    for n_turbines in (0, -1, 2.0, True):
        with pytest.raises(ValueError, match="n_turbines="):
            WindFarm(n_turbines)
    with pytest.raises(ValueError, match="rate="):
        WindFarm(2, rate=-1)
    with pytest.raises(KeyError):
        WindFarm(2)["T03"]


# --- reproducible ---------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, TROUBLES, {"rate": 1 / 600, **TROUBLES}, {"rate": 25}])
def test_same_seed_same_rows(options):
    n = 300 if options.get("rate", 1) < 1 else 5000
    turbine = WindTurbine(seed=7, **options)
    frame = turbine.frame(n)
    assert_frame_equal(frame, turbine.frame(n), check_exact=True)
    assert_frame_equal(frame, WindTurbine(seed=7, **options).frame(n), check_exact=True)
    assert not np.array_equal(frame, WindTurbine(seed=8, **options).frame(n), equal_nan=True)


@settings(max_examples=15)
@given(size=st.integers(1, 9000))
def test_rows_do_not_depend_on_the_chunk_size(size):
    turbine = WindTurbine(seed=1, **TROUBLES)
    whole = turbine.frame(9500)
    parts = pd.concat(itertools.islice(turbine.chunks(size), min(3, 9500 // size)))
    assert_frame_equal(parts, whole.iloc[: len(parts)], check_exact=True)


def test_pairs_are_the_rows_of_the_frame():
    n = 9000
    turbine = WindTurbine(seed=1, **TROUBLES)
    frame = turbine.frame(n)
    pairs = list(turbine.take(n))
    rows = [[{**x, **y}.get(name, math.nan) for name in CHANNELS] for x, y in pairs]
    assert_array_equal(np.array(rows), frame.to_numpy())
    assert [x["time"] for x, _ in pairs] == frame.index.to_pydatetime().tolist()


def test_two_readers_do_not_disturb_each_other():
    turbine = WindTurbine(seed=3)
    pairs = zip(turbine, turbine, strict=True)
    assert all(a == b for a, b in itertools.islice(pairs, 5000))


def test_chunks_are_the_callers_to_keep():
    first, second = itertools.islice(WindTurbine().chunks(10), 2)
    kept = second.copy()
    first[:] = 0.0
    assert_frame_equal(second, kept)
    assert (WindTurbine().frame(10) != 0).to_numpy().any()


def test_noise_does_not_change_what_happens():
    quiet, noisy = (WindTurbine(noise=noise).frame(5000) for noise in (0, 2))
    spread = (noisy - quiet).std()
    np.testing.assert_allclose(spread, 2 * np.array(WindTurbine.NOISE), rtol=0.1)


# --- physics --------------------------------------------------------------------------------------


def test_wind_has_the_spectrum_of_turbulence(breeze):
    frequency, density = signal.welch(breeze["wind_speed"].to_numpy(), fs=4, nperseg=4096)
    inertial = (frequency > 0.03) & (frequency < 1)
    slope = np.polyfit(np.log(frequency[inertial]), np.log(density[inertial]), 1)[0]
    assert -1.85 < slope < -1.5
    # Flat at the low end: the slope is not that of a random walk.
    low = (frequency > 0) & (frequency < 0.003)
    assert density[low].mean() < 30 * density[(frequency > 0.008) & (frequency < 0.012)].mean()


@pytest.mark.parametrize("turbulence", [0.05, 0.2])
def test_turbulence_intensity(turbulence):
    wind = WindTurbine(seed=2, turbulence=turbulence, noise=0).frame(40_000)["wind_speed"]
    in_ten_minutes = wind.resample("10min")
    intensity = math.sqrt((in_ten_minutes.std() ** 2).mean()) / wind.mean()
    assert 0.85 * turbulence < intensity < 1.15 * turbulence


def test_no_turbulence_no_gusts():
    wind = WindTurbine(turbulence=0, noise=0).frame(20_000)["wind_speed"]
    assert wind.diff().abs().max() < 0.02


def test_mean_wind_and_its_day():
    wind = pd.concat(WindTurbine(seed=seed, rate=1 / 600, mean_wind=8).frame(3000)["wind_speed"] for seed in range(2))
    assert 7 < wind.mean() < 9
    by_hour = wind.groupby(wind.index.hour).mean()
    assert by_hour[12:18].mean() > 1.05 * by_hour[[0, 1, 2, 3, 4, 5]].mean()


def test_power_curve(month):
    wind, power = month["wind_speed"], month["power"]
    partial = (wind > 5) & (wind < 8.5)
    exponent = np.polyfit(np.log(wind[partial]), np.log(power[partial]), 1)[0]
    assert 2.7 < exponent < 3.4
    rated = (wind > 14) & (wind < 18)
    assert rated.sum() > 50
    assert power[rated].between(4700, 5010).all()
    assert (month["pitch"][rated] > 5).all()
    assert (month["pitch"][partial] < 1).all()
    # Betz's limit, on the share of the wind's power that the rotor takes.
    share = power[partial] * 1e3 / (0.5 * 1.225 * math.pi * 63**2 * wind[partial] ** 3)
    assert share.median() > 0.4 and share.max() < 0.593


def test_rotor_follows_the_wind_and_then_holds_its_speed(month):
    wind, speed = month["wind_speed"], month["rotor_speed"]
    partial = (wind > 5) & (wind < 8.5)
    ratio = speed[partial] * math.pi / 30 * 63 / wind[partial]
    assert ratio.between(7, 8.2).all()
    assert speed[(wind > 14) & (wind < 18)].between(11.9, 12.3).all()


def test_calm_and_storm_stop_the_turbine():
    calm = WindTurbine(rate=1 / 60, mean_wind=1.5, noise=0).frame(600)
    storm = WindTurbine(rate=1 / 60, mean_wind=30, noise=0).frame(600)
    for frame, still in ((calm, calm["wind_speed"] < 2), (storm, storm["wind_speed"] > 28)):
        # Given the minutes it takes to come to rest.
        rest = frame[still.rolling(10).min() == 1]
        assert len(rest) > 100
        assert (rest["power"] < 0).all()  # it lives on the grid
        assert (rest["pitch"] > 80).all()
        assert (rest["rotor_speed"] < 2).all()


def test_turbine_starts_again_after_a_calm():
    frame = WindTurbine(seed=1, rate=1 / 600, mean_wind=4).frame(2500)
    running = frame["power"] > 50
    assert 0.2 < running.mean() < 0.95
    assert running.astype(int).diff().eq(1).sum() >= 3
    assert (frame["power"][frame["wind_speed"] > 6] > 300).all()


def test_edge_moments_turn_with_the_rotor(breeze):
    part = breeze.iloc[:4096]
    spectra = np.fft.rfft(part[EDGES] - part[EDGES].mean(), axis=0)
    # In turns of the rotor, which does not keep its speed.
    turns = np.unwrap(np.arctan2(part["azimuth_sin"], part["azimuth_cos"])) / (2 * math.pi)
    assert np.abs(spectra).argmax(axis=0).tolist() == pytest.approx([turns[-1] - turns[0]] * 3, rel=0.1)
    phases = np.angle(np.exp(-2j * math.pi * turns) @ part[EDGES].to_numpy(), deg=True)
    steps = (np.diff(phases, append=phases[0]) + 180) % 360 - 180
    np.testing.assert_allclose(steps, 120, atol=3)
    # Gravity gives the size: 3.6e5 kg m * 9.81 m/s^2.
    amplitude = 2 * np.abs(np.exp(-2j * math.pi * turns) @ part[EDGES].to_numpy()) / len(part)
    np.testing.assert_allclose(amplitude, 3530, rtol=0.05)


def test_flap_moments_see_shear_and_tower(breeze):
    azimuth = np.degrees(np.arctan2(breeze["azimuth_sin"], breeze["azimuth_cos"])) % 360
    flap = breeze["flap_1"] / breeze[FLAPS].mean(axis=1)
    top, right, bottom, left = (
        flap[((azimuth - angle + 180) % 360 - 180).abs() < 15].mean() for angle in (0, 130, 180, 230)
    )
    # More wind at the top than near the ground, and least in front of the tower.
    assert top > 1.05 > 0.98 > max(left, right) > bottom + 0.03


def test_flap_grows_with_thrust_and_falls_above_rated_wind(month):
    flap = month[FLAPS].mean(axis=1).groupby(month["wind_speed"].round()).mean()
    assert flap.loc[4:10].is_monotonic_increasing
    assert flap.loc[10:11].max() > 1.3 * flap.loc[15]
    means = month[FLAPS].mean()
    assert means.max() < 1.01 * means.min()


def test_tower_sways_at_its_own_frequency(breeze):
    frequency, density = signal.welch(breeze["tower_acceleration"].to_numpy(), fs=4, nperseg=4096)
    assert frequency[density.argmax()] == pytest.approx(0.32, abs=0.02)


def test_generator_warms_up_behind_the_power():
    frame = WindTurbine(seed=0, rate=1 / 60, noise=0).frame(5000)
    power, temperature = frame["power"], frame["generator_temperature"]
    lags = range(0, 121, 5)
    best = max(lags, key=lambda lag: power.corr(temperature.shift(-lag)))
    assert 10 <= best <= 60
    assert power.corr(temperature.shift(-best)) > power.corr(temperature) + 0.05
    # A first-order lag of half an hour of what the power heats, on what the air has.
    smooth = power.ewm(com=30, adjust=False).mean().iloc[500:]
    slope = np.polyfit(smooth, temperature.iloc[500:], 1)[0]
    assert 60 < 5000 * slope < 80


def test_coarse_steps_agree_with_fine_ones():
    fine = WindTurbine(seed=5, rate=0.1, turbulence=0, noise=0).frame(6 * 300)
    coarse = WindTurbine(seed=5, rate=1 / 60, turbulence=0, noise=0).frame(300)
    # A row is the mean of the interval that ends with it.
    means = fine.resample("60s", closed="right", label="right").mean().reindex(coarse.index)
    for name, tolerance in {"wind_speed": 0.01, "rotor_speed": 0.15, "power": 80, "flap_1": 150}.items():
        assert (means[name] - coarse[name]).iloc[1:].abs().max() < tolerance, name


def test_means_have_less_noise():
    slow = [WindTurbine(rate=1 / 100, noise=noise).frame(500) for noise in (0, 1)]
    np.testing.assert_allclose((slow[1] - slow[0]).std(), 0.1 * np.array(WindTurbine.NOISE), rtol=0.2)


@pytest.mark.parametrize(
    "options", [{"mean_wind": 11}, {"mean_wind": 11, **TROUBLES}, {"mean_wind": 20, "turbulence": 0.2}]
)
def test_values_stay_within_what_a_turbine_can_bear(options):
    frame = WindTurbine(seed=4, **options).frame(200_000)
    if not options.get("dropouts"):
        assert np.isfinite(frame.to_numpy()).all()
    limits = {
        "wind_speed": (-0.5, 80),
        "rotor_speed": (-0.5, 20),
        "pitch": (-1, 92),
        "azimuth_sin": (-1.05, 1.05),
        "azimuth_cos": (-1.05, 1.05),
        "power": (-100, 5100),
        "tower_acceleration": (-5, 5),
        "generator_temperature": (-30, 140),
        **dict.fromkeys(FLAPS, (-25_000, 25_000)),
        **dict.fromkeys(EDGES, (-15_000, 15_000)),
    }
    for name, (low, high) in limits.items():
        assert low < frame[name].min() and frame[name].max() < high, name


@pytest.mark.parametrize("rate", [1e-4, 1 / 3600, 0.3, 1.0, 7.0, 1000.0])
def test_any_rate(rate):
    frame = WindTurbine(rate=rate, stuck=0.1).frame(20)
    assert np.isfinite(frame.to_numpy()).all()
    step = (frame.index[-1] - frame.index[0]).total_seconds() / 19
    assert step == pytest.approx(1 / rate, rel=1e-4)


# --- troubles -------------------------------------------------------------------------------------


def bursts(flags):
    """Lengths of the runs of True."""
    edges = np.diff(np.concatenate([[0], flags.astype(int), [0]]))
    return np.flatnonzero(edges == -1) - np.flatnonzero(edges == 1)


@pytest.mark.parametrize("share", [0.02, 0.3, 0.9])
def test_dropouts_have_their_share_and_come_in_bursts(share):
    missing = WindTurbine(dropouts=share).frame(60_000).isna()
    np.testing.assert_allclose(missing.mean(), share, rtol=0.2)
    lengths = np.concatenate([bursts(missing[name].to_numpy()) for name in CHANNELS])
    assert 9 < lengths.mean() < 11
    # One encoder, two readings.
    assert_array_equal(missing["azimuth_sin"], missing["azimuth_cos"])
    assert not (missing["wind_speed"] & missing["power"]).equals(missing["power"])


def test_dropouts_are_absent_from_dicts():
    pairs = list(WindTurbine(dropouts=0.5).take(500))
    assert all(value == value for x, y in pairs for value in [*x.values(), *y.values()])
    assert min(len(x) + len(y) for x, y in pairs) < 10
    assert all("time" in x for x, _ in pairs)


def test_stuck_sensors_repeat_their_last_reading():
    n = 50_000
    turbine = WindTurbine(stuck=0.1)
    healthy, frame = WindTurbine().frame(n), turbine.frame(n)
    repeated = frame.diff() == 0
    # Some 80 bursts per channel of lengths that vary as much as their mean: 15 % of chance in each, 5 % in all.
    assert repeated.mean().mean() == pytest.approx(0.1, rel=0.15)
    assert repeated.mean().between(0.05, 0.15).all()
    # But for the first row, which may repeat one that is not shown.
    assert_array_equal(frame.where(~repeated)[1:], healthy.where(~repeated)[1:])
    lengths = np.concatenate([bursts(repeated[name].to_numpy()) for name in CHANNELS])
    assert 50 < lengths.mean() < 70
    episodes = turbine.episodes(n)
    assert set(episodes["kind"]) == {"stuck"}
    for name in CHANNELS:
        told = np.zeros(n, dtype=bool)
        spans = episodes.loc[episodes["channel"] == name, ["start", "end"]]
        for first, stop in frame.index.searchsorted(spans.to_numpy().ravel()).reshape(-1, 2):
            told[first:stop] = True
        assert_array_equal(told[1:], repeated[name].to_numpy()[1:])


MINUTES = {"rate": 1 / 60, "mean_wind": 11, "noise": 0}
N_MINUTES = 10 * 1440


@pytest.fixture(scope="module")
def healthy():
    return WindTurbine(seed=0, **MINUTES).frame(N_MINUTES)


def cores(turbine, kind, healthy):
    """Frames without and with an episode, and its channel: the inner third of each episode that ends in time."""
    frame, episodes = turbine.frame(N_MINUTES), turbine.episodes(N_MINUTES)
    chosen = episodes[(episodes["kind"] == kind) & (episodes["end"] < frame.index[-1])]
    assert len(chosen) >= 2
    for start, end, channel in zip(chosen["start"], chosen["end"], chosen["channel"], strict=True):
        inner = slice(start + (end - start) / 3, end - (end - start) / 3)
        yield healthy.loc[inner], frame.loc[inner], channel


@pytest.mark.parametrize("option", ["icing", "faults", "regimes"])
def test_nothing_shows_before_the_first_episode(option, healthy):
    turbine = WindTurbine(seed=0, **MINUTES, **{option: True})
    frame, first = turbine.frame(N_MINUTES), turbine.episodes(N_MINUTES)["start"].iloc[0]
    others = [name for name in CHANNELS if name != "generator_temperature"]  # icing is cold
    before = frame.index < first
    assert 50 < before.sum() < N_MINUTES
    assert_frame_equal(frame.loc[before, others], healthy.loc[before, others], check_exact=True)
    assert not frame[others + ["generator_temperature"]].equals(healthy)


def test_icing_lowers_power_and_unbalances_the_blades(healthy):
    turbine = WindTurbine(seed=0, **MINUTES, icing=True)
    for before, after, channel in cores(turbine, "icing", healthy):
        assert channel == "power"
        partial = before["power"].between(300, 4500)
        assert (after["power"][partial] < 0.99 * before["power"][partial]).sum() >= 0.9 * partial.sum()
    # Once per revolution; means over minutes do not show it.
    fast = WindTurbine(seed=0, icing=True, noise=0)
    first = fast.episodes(50_000).iloc[0]
    frame = fast.frame(50_000)
    middle = first["start"] + (first["end"] - first["start"]) / 2
    spread, usual = (frame.loc[at : at + timedelta(minutes=10), EDGES].std() for at in (middle, frame.index[0]))
    assert spread["edge_1"] > 1.03 * spread["edge_3"]
    assert usual["edge_1"] < 1.02 * usual["edge_3"]
    assert (
        frame["generator_temperature"].mean() < WindTurbine(seed=0).frame(50_000)["generator_temperature"].mean() - 10
    )


def test_pitch_lag_shows_on_its_blade(healthy):
    for before, after, channel in cores(WindTurbine(seed=0, **MINUTES, faults=True), "pitch_lag", healthy):
        change = (after[FLAPS] - before[FLAPS]).mean()
        assert change.idxmin() == channel
        assert change[channel] < -300
        assert change.drop(channel).min() > 0


def test_bearing_wear_heats_and_changes_nothing_else(healthy):
    for before, after, channel in cores(WindTurbine(seed=0, **MINUTES, faults=True), "bearing_wear", healthy):
        assert channel == "generator_temperature"
        assert (after[channel] - before[channel]).mean() > 5
        # Not quite the same: earlier faults have left the rotor at another azimuth.
        assert (after["power"] - before["power"]).abs().mean() < 15


def test_curtailment_caps_the_power(healthy):
    capped = 0
    for before, after, channel in cores(WindTurbine(seed=0, **MINUTES, regimes=True), "curtailment", healthy):
        assert channel == "power"
        assert after["power"].max() < 3600
        capped += before["power"].max() > 4000
        if before["power"].min() > 4000:
            assert after["power"].std() < 10
            assert (after["pitch"] > before["pitch"]).mean() > 0.95
    assert capped >= 1


def test_derating_slows_the_rotor(healthy):
    for before, after, channel in cores(WindTurbine(seed=0, **MINUTES, regimes=True), "derating", healthy):
        assert channel == "rotor_speed"
        assert after["rotor_speed"].max() < 11.2
        if before["rotor_speed"].min() > 11.5:
            assert (before["rotor_speed"] - after["rotor_speed"]).mean() > 0.8


def test_new_controller_changes_speed_but_hardly_power(healthy):
    for before, after, channel in cores(WindTurbine(seed=0, **MINUTES, regimes=True), "new_controller", healthy):
        assert channel == "rotor_speed"
        partial = before["power"].between(500, 1800)
        if partial.sum() > 5:
            assert (after["rotor_speed"] / before["rotor_speed"])[partial].mean() < 0.95
            assert (after["power"] / before["power"])[partial].mean() > 0.85


def test_episodes_are_off_by_default_and_do_not_overlap_within_a_kind():
    assert WindTurbine().episodes(10**6).empty
    assert list(WindTurbine().episodes(5).columns) == ["start", "end", "kind", "channel"]
    episodes = WindTurbine(icing=True, faults=True, regimes=True).episodes(10**6)
    assert episodes["start"].is_monotonic_increasing
    assert (episodes["end"] > episodes["start"]).all()
    kinds = {"icing", "pitch_lag", "bearing_wear", "curtailment", "derating", "new_controller"}
    assert set(episodes["kind"]) == kinds
    for group in (["icing"], ["pitch_lag", "bearing_wear"], ["curtailment", "derating", "new_controller"]):
        one = episodes[episodes["kind"].isin(group)]
        assert (one["start"].to_numpy()[1:] > one["end"].to_numpy()[:-1]).all()


def test_more_rows_bring_more_episodes_and_keep_the_first():
    turbine = WindTurbine(seed=3, faults=True)
    few, many = turbine.episodes(50_000), turbine.episodes(500_000)
    assert 0 < len(few) < len(many)
    assert_frame_equal(few, many.iloc[: len(few)])


# --- the farm -------------------------------------------------------------------------------------


def test_farm_goes_round():
    farm = WindFarm(3, seed=5, **TROUBLES)
    assert farm.keys == ("T01", "T02", "T03") and len(farm) == 3
    rows = list(farm.take(3 * 4500))
    assert [key for key, _, _ in rows] == [*farm.keys] * 4500
    times = [x["time"] for _, x, _ in rows]
    assert times == sorted(times)
    for number, key in enumerate(farm.keys):
        assert list(farm[key].take(4500)) == [(x, y) for _, x, y in rows[number::3]]
    assert list(itertools.islice(WindFarm(3, seed=5, **TROUBLES), 300)) == rows[:300]


def test_farm_of_one_and_of_many():
    assert WindFarm(1).keys == ("T01",)
    assert WindFarm(100).keys[0] == "T001"
    assert np.isfinite(WindFarm(1)["T01"].frame(100).to_numpy()).all()


def test_neighbours_share_the_weather_but_not_the_turbulence():
    farm = WindFarm(2, seed=1)
    winds = pd.concat([farm[key].frame(40_000)["wind_speed"] for key in farm.keys], axis=1, keys=farm.keys)
    slow = winds.resample("30min").mean()
    assert slow["T01"].corr(slow["T02"]) > 0.9
    fast = winds - winds.rolling(300, center=True).mean()
    assert abs(fast["T01"].corr(fast["T02"])) < 0.03
    strangers = [WindTurbine(seed=seed).frame(40_000)["wind_speed"].resample("30min").mean() for seed in (1, 2)]
    assert strangers[0].corr(strangers[1]) < 0.8


def test_weather_travels_over_the_farm():
    farm = WindFarm(25, seed=0, rate=1 / 60, turbulence=0, noise=0)
    near, far = (farm[key].frame(6000)["wind_speed"].diff() for key in ("T25", "T01"))
    # Five rows and columns of 880 m, a mean wind of 9 m/s from the south-west to the north-east or back.
    lags = range(-20, 21)
    best = max(lags, key=lambda lag: near.corr(far.shift(-lag)))
    assert 3 <= abs(best) <= 12


def test_turbines_of_a_farm_differ_a_little():
    farm = WindFarm(4, seed=0, rate=1 / 600)
    power = [farm[key].frame(300)["power"].mean() for key in farm.keys]
    assert len(set(power)) == 4
    assert max(power) < 1.2 * min(power)


# --- speed ----------------------------------------------------------------------------------------


def rows_per_second(read, n):
    """Rows per second of CPU, the best of some runs."""
    seconds = []
    for _ in range(3):
        start = time.process_time()
        read(n)
        seconds.append(time.process_time() - start)
    return n / min(seconds)


def test_speed():
    turbine = WindTurbine()
    assert rows_per_second(turbine.frame, 20_000) > 20_000
    assert rows_per_second(lambda n: collections.deque(turbine.take(n), maxlen=0), 20_000) > 15_000
    assert rows_per_second(WindTurbine(rate=1 / 600).frame, 200) > 300


@pytest.mark.system
def test_import_leaves_river_alone():
    code = "import sys, momostream.datasets.wind; print([name for name in ['river', 'sklearn'] if name in sys.modules])"
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, timeout=600)
    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr
