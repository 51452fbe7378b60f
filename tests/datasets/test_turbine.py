"""The turbine on arrays: what its feeds do not show."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.linalg import expm

from momostream.datasets import turbine as machine
from momostream.datasets.turbine import SCENARIOS, Event, Site, Timeline, Turbine, Weather, lagging_blade
from momostream.datasets.wind import PURPOSES, WindTurbine


def turbine(**options):
    defaults = {"turbulence": 0.1, "wind": 8.0, "ambient": 10.0, "dt": 0.1, "n_steps": 10, "averaged": False}
    return Turbine(Site(), **{**defaults, **options}, rng=np.random.default_rng(0))


def run(turbine, times, gusts=(), events=()):
    return turbine.run(times, np.full(len(times), 8.0), np.full(len(times), 10.0), list(gusts), list(events))


@pytest.mark.parametrize("dt", [1e-3, 0.1, 1.0])
def test_tower_step_is_the_matrix_exponential(dt):
    natural = 2 * math.pi * machine.TOWER_FREQUENCY
    motion = np.array([[0, 1], [-(natural**2), -2 * machine.TOWER_DAMPING * natural]])
    assert_allclose(machine._tower_step(dt).reshape(2, 2), expm(dt * motion), atol=1e-12)


@pytest.mark.parametrize("averaged", [False, True])
def test_runs_go_on_from_each_other(averaged):
    times = 0.1 * np.arange(1, 2001)
    gust = Event(50.0, 60.0, "gust", 0.5)
    whole = run(turbine(averaged=averaged), times, [gust])
    parted = turbine(averaged=averaged)
    parts = [run(parted, part, [gust]) for part in np.split(times, [10, 550])]
    assert [len(part) for part in parts] == [1, 54, 145]
    assert_array_equal(np.concatenate(parts), whole)


def test_rows_are_last_steps_or_means():
    times = 0.1 * np.arange(1, 201)
    steps = run(turbine(n_steps=1), times).reshape(20, 10, machine.N_READINGS)
    assert_array_equal(run(turbine(), times), steps[:, -1])
    assert_allclose(run(turbine(averaged=True), times), steps.mean(axis=1), rtol=1e-9, atol=1e-9)


def test_an_event_begins_with_the_row_in_which_it_starts():
    times = 0.1 * np.arange(1, 201)
    usual, lagging = (run(turbine(), times, events=events) for events in ([], [Event(5.5, 15.0, "pitch_lag", 0.5)]))
    assert_array_equal(lagging[:5], usual[:5])
    flap_2 = 9
    assert lagging[5, flap_2] < usual[5, flap_2]


def test_readings_are_the_channels_of_the_feed():
    assert len(WindTurbine.UNITS) == len(WindTurbine.NOISE) == machine.N_READINGS
    assert set(SCENARIOS) < set(PURPOSES)


def test_level_rises_and_falls_within_the_event():
    event = Event(10.0, 20.0, "icing", 0.0)
    times = np.array([0.0, 10.0, 11.0, 15.0, 19.0, 20.0, 30.0])
    assert_allclose(event.level(times, 2.0), [0, 0, 0.5, 1, 0.5, 0, 0])
    assert_allclose(event.level(times, 100.0), [0, 0, 0.2, 1, 0.2, 0, 0])  # no longer than half of it


@pytest.mark.parametrize(("size", "blade"), [(0.0, 0), (0.33, 0), (0.34, 1), (0.67, 2), (np.nextafter(1, 0), 2)])
def test_every_blade_can_lag(size, blade):
    assert lagging_blade(Event(0.0, 1.0, "pitch_lag", size)) == blade


@pytest.mark.parametrize("name", SCENARIOS)
def test_timeline_is_the_same_in_pieces(name):
    scenario = SCENARIOS[name]
    whole = Timeline(np.random.default_rng(1), scenario).between(0.0, 20 * scenario.gap)
    pieces = Timeline(np.random.default_rng(1), scenario)
    edges = np.linspace(0.0, 20 * scenario.gap, 101)
    assert len(whole) > 5
    for start, end in zip(edges[:-1], edges[1:], strict=True):
        assert pieces.between(start, end) == [event for event in whole if event.start < end and event.end > start]
    assert {event.kind for event in whole} == set(scenario.kinds)
    assert all(scenario.shortest <= event.end - event.start <= scenario.longest for event in whole)


def test_weather_is_the_same_in_pieces_and_later_downstream():
    times = np.arange(0.0, 3 * machine.DAY, 60.0)
    option = {"mean_wind": 9.0, "icing": False, "second_of_day": 0.0}
    wind, ambient = Weather(np.random.default_rng(2), Site(), **option).at(times)
    pieces = Weather(np.random.default_rng(2), Site(), **option)
    for part, a, b in zip(np.split(times, 9), np.split(wind, 9), np.split(ambient, 9), strict=True):
        for found, expected in zip(pieces.at(part), (a, b), strict=True):
            assert_array_equal(found, expected)
    # The middle of a farm sees the wind of its edge when that has come as far.
    later, _ = Weather(np.random.default_rng(2), Site(reach=9000.0), **option).at(times)
    expected = np.interp(times - 9000.0 / wind, times, wind)
    assert_allclose(later[180:], expected[180:], rtol=1e-9)
