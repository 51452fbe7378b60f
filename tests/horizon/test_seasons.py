"""Whether a feed repeats itself: periods that are there, and none where there is none."""

from __future__ import annotations

import numpy as np
import pytest

from momostream.horizon.seasons import _refined, find_season


def wave(period, n_rows, noise, seed=0, n_series=1):
    """A pattern of two harmonics, in other phases in each series, with noise."""
    rng = np.random.default_rng(seed)
    angle = 2.0 * np.pi * np.arange(n_rows)[:, None] / period + np.arange(n_series)
    return np.sin(angle) + 0.5 * np.cos(2.0 * angle) + noise * rng.normal(size=(n_rows, n_series))


@pytest.mark.parametrize("period", [4, 7, 12, 24, 50])
@pytest.mark.parametrize("noise", [0.0, 0.02])
@pytest.mark.parametrize("n_series", [1, 3])
def test_known_periods_are_found(period, noise, n_series):
    for seed in range(3):
        assert find_season(wave(period, 400, noise, seed, n_series)) == period


def test_a_long_period_with_noise_is_found_but_for_a_row():
    for seed in range(3):
        assert find_season(wave(96, 1024, 0.03, seed, 2)) == pytest.approx(96, abs=2)


def test_a_long_season_that_changes_of_one_row_do_not_show():
    for seed in range(3):
        noise = np.random.default_rng(seed).normal(size=(1024, 2))
        t = np.arange(1024.0)[:, None]
        assert find_season(np.sin(2.0 * np.pi * t / 120) + 0.3 * noise) == pytest.approx(120, abs=3)


@pytest.mark.parametrize(("width", "season"), [(2.0, 24), (12.0, 23)])
def test_later_seasons_count_where_the_first_one_is_as_much_alike(width, season):
    # Humps after 24, 46 and 69 rows, as where rows are missing. A narrow hump is low one row beside its top.
    lags = np.arange(80.0)
    humps = [np.exp(-(((lags - at) / width) ** 2)) for at in (0, 24, 46, 69)]
    assert _refined(24, np.max(humps, axis=0)) == season


def test_of_many_series_some_are_searched():
    Y = np.column_stack([wave(24, 400, 0.05), np.random.default_rng(0).normal(size=(400, 49)).cumsum(axis=0)])
    assert find_season(Y[:, :4]) == 24
    assert find_season(np.repeat(Y[:, :1], 50, axis=1)) == 24
    assert find_season(Y) is None


def test_a_pattern_of_any_shape():
    rng = np.random.default_rng(0)
    Y = np.tile(rng.normal(size=(31, 2)), (12, 1)) + 0.1 * rng.normal(size=(372, 2))
    assert find_season(Y) == 31


@pytest.mark.parametrize("season", [3, 9, 27])
@pytest.mark.parametrize("n_series", [1, 2])
def test_a_season_that_repeats_itself_exactly(season, n_series):
    # Changes over a whole season are zero.
    pattern = np.random.default_rng(season).normal(size=(season, 1))
    noisy = wave(season, 10 * season, 0.05, n_series=n_series)
    assert find_season(np.column_stack([np.tile(pattern, (10, 1)), noisy[:, 1:]])) == season


def test_a_season_on_top_of_a_wandering_level():
    rng = np.random.default_rng(0)
    Y = 3.0 * wave(24, 600, 0.05) + 0.5 * rng.normal(size=(600, 1)).cumsum(axis=0)
    assert find_season(Y) == 24


def test_the_season_most_series_have():
    Y = np.column_stack([wave(24, 600, 0.05, n_series=3), np.random.default_rng(0).normal(size=600).cumsum()])
    assert find_season(Y) == 24


def test_a_period_that_is_not_a_whole_number_is_rounded():
    assert find_season(wave(12.4, 400, 0.02)) == 12


@pytest.mark.parametrize(("n_rows", "n_series"), [(64, 1), (64, 5), (128, 2), (512, 1), (1024, 1), (1024, 3)])
def test_none_in_random_walks_and_white_noise(n_rows, n_series):
    found = []
    for seed in range(40):
        noise = np.random.default_rng(seed).normal(size=(n_rows, n_series))
        found += [find_season(noise), find_season(noise.cumsum(axis=0))]
    # Among so many a few may look as if.
    assert sum(season is not None for season in found) <= 3


def test_none_in_a_slow_drift():
    t = np.linspace(0.0, 1.0, 500)[:, None]
    for Y in (t, t**2, np.exp(-3.0 * t), np.sin(2.0 * t), t + 1e6):
        assert find_season(Y) is None


def test_none_where_nothing_moves():
    assert find_season(np.full((300, 2), 0.1)) is None
    assert find_season(np.arange(300.0)[:, None]) is None


def test_none_in_one_jump():
    Y = np.zeros((300, 1))
    Y[150:] = 1e6
    assert find_season(Y) is None


def test_a_jump_does_not_hide_a_season():
    Y = wave(24, 400, 0.05)
    Y[200:] += 1000.0
    assert find_season(Y) == 24


def test_a_constant_series_beside_a_seasonal_one():
    assert find_season(np.column_stack([wave(24, 400, 0.05), np.full(400, 3.0)])) == 24


@pytest.mark.parametrize("n_rows", [0, 1, 2, 16, 17, 18])
def test_few_rows_have_no_season(n_rows):
    assert find_season(wave(4, n_rows, 0.0)[:n_rows]) in (None, 4)
    assert find_season(np.zeros((n_rows, 2))) is None


def test_four_seasons_must_have_been_seen():
    assert find_season(wave(24, 90, 0.0)) is None
    assert find_season(wave(24, 110, 0.0)) == 24


def slow_changes_with_a_season(size, n_rows=600):
    """Values whose changes are one slow wave and one of 12 rows, and how far the season stands out from its valley."""
    t = np.arange(n_rows)
    changes = np.sin(2.0 * np.pi * t / n_rows) + size * np.sin(2.0 * np.pi * t / 12)
    at = [np.mean(changes[k:] * changes[: n_rows - k]) / np.mean(changes**2) for k in range(n_rows // 4)]
    prominence = max(at[k] - min(at[:k]) for k in range(12, len(at), 12))
    return np.r_[0.0, changes.cumsum()][:, None], prominence


@pytest.mark.parametrize(("size", "expected", "season"), [(0.223, 0.099, None), (0.226, 0.1015, 12)])
def test_a_season_stands_out_from_the_valley_before_it_by_a_tenth(size, expected, season):
    Y, prominence = slow_changes_with_a_season(size)
    assert prominence == pytest.approx(expected, abs=0.0005)
    assert find_season(Y) == season


def test_units_and_offsets_do_not_matter():
    Y = wave(24, 400, 0.3, n_series=2)
    assert find_season(Y * [2.0**-30, 2.0**30] + [1e-3, 1e6]) == find_season(Y)


def test_the_double_of_a_season_is_not_the_season():
    # Every other day is a little different.
    Y = wave(24, 600, 0.02) + 0.1 * wave(48, 600, 0.0)
    assert find_season(Y) == 24


def test_no_series():
    assert find_season(np.zeros((200, 0))) is None
