"""Times of rows: what counts as one, the usual step, gaps, the calendar."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from momostream.horizon.calendar import DAY, HOUR, MINUTE, Calendar, Clock, as_time, day_seasons, waves_of

NOON = datetime(2024, 2, 29, 12, 0, 0, 250_000)
NOON_NUMBER = 1e6 * NOON.replace(tzinfo=UTC).timestamp()


@pytest.mark.parametrize("value", [NOON, pd.Timestamp(NOON), np.datetime64(NOON), np.datetime64(NOON, "ns")])
def test_dates_are_microseconds(value):
    assert as_time("at", value) == (NOON_NUMBER, "date and time")


def test_dates_with_a_zone_are_told_apart():
    berlin = NOON.replace(tzinfo=timezone(timedelta(hours=1)))
    for value in (berlin, pd.Timestamp(berlin)):
        assert as_time("at", value) == (NOON_NUMBER - HOUR, "date and time with a time zone")
    assert as_time("at", NOON.replace(tzinfo=UTC))[0] == NOON_NUMBER


def test_other_times():
    assert as_time("at", date(1970, 1, 3)) == (2 * DAY, "date and time")
    assert as_time("at", datetime(1969, 12, 31)) == (-DAY, "date and time")
    assert as_time("at", np.float32(2.5)) == (2.5, "number")
    for missing in (None, np.nan, pd.NaT, np.datetime64("NaT"), pd.NA):
        assert as_time("at", missing) is None
    for wrong in ("2024-01-01", [1], timedelta(1)):
        with pytest.raises(TypeError, match="'at'"):
            as_time("at", wrong)
    with pytest.raises(ValueError, match="'at'"):
        as_time("at", np.inf)


def test_microseconds_are_exact():
    first, second = (as_time("at", NOON + timedelta(microseconds=k))[0] for k in (0, 1))
    assert second - first == 1.0


@pytest.mark.parametrize(
    ("step", "n_terms"),
    [(1e6, 9), (HOUR, 9), (6 * HOUR - 1, 9), (6 * HOUR, 3), (DAY, 3), (DAY + 1, 0), (30 * DAY, 0)],
)
def test_which_terms_there_are(step, n_terms):
    calendar = Calendar(step)
    assert calendar.terms(np.arange(3) * step).shape == (3, n_terms)
    assert len(calendar.names) == n_terms
    assert calendar.kind is None or calendar.names[calendar.kind] == "weekend"


def test_terms_go_round():
    times = NOON_NUMBER + HOUR * np.arange(24.0)
    terms = Calendar(HOUR).terms(times)[:, :4]
    assert_allclose(terms, Calendar(HOUR).terms(times + DAY)[:, :4], atol=1e-9)
    assert_allclose((terms.reshape(24, 2, 2) ** 2).sum(axis=2), 1.0)
    week = Calendar(DAY).terms(NOON_NUMBER + DAY * np.arange(14.0))
    assert_allclose(week[:7], week[7:], atol=1e-9)
    assert np.abs(week[0] - week[3]).max() > 0.5
    # Two waves distinguish the four quarters of a day.
    assert len(np.unique(Calendar(HOUR).terms(6 * HOUR * np.arange(4.0))[:, :4].round(6), axis=0)) == 4


@pytest.mark.parametrize(
    ("step", "seasons"),
    [
        (MINUTE, (1440, 2880)),
        (10 * MINUTE, (144, 288, 1008)),
        (9.7 * MINUTE, (144, 288, 1008)),
        (10.3 * MINUTE, (144, 288, 1008)),
        (7 * MINUTE, (206, 412, 1442)),
        (6 * HOUR, (4, 8, 28)),
        (7 * HOUR, None),
        (30e6, None),
    ],
)
def test_seasons_of_the_day(step, seasons):
    assert day_seasons(step) == seasons


def ticking(times, kind="number"):
    clock = Clock()
    for time in times:
        clock.check(time, kind)
        clock.advance(time, kind)
    return clock


def test_step_is_the_median_of_the_newest():
    assert ticking([0.0, 1.0, 2.0]).step is None
    assert ticking([0.0, 1.0, 2.0, 9.0]).step == 1.0
    # A new step takes over when more than half of the 32 newest have it.
    clock = ticking(np.arange(100.0))
    for k in range(15):
        clock.advance(109.0 + 10 * k, "number")
    assert clock.step == 1.0
    clock.advance(clock.last + 10.0, "number")
    clock.advance(clock.last + 10.0, "number")
    assert clock.step == 10.0


@pytest.mark.parametrize(("gap", "n"), [(0.1, 0), (1.0, 0), (1.49, 0), (1.5, 1), (2.0, 1), (2.6, 2), (1000.0, 999)])
def test_gaps_are_counted_in_steps(gap, n):
    assert ticking(np.arange(5.0)).n_missing(gap) == n


def test_gaps_that_are_not_filled():
    assert ticking(np.arange(5.0)).n_missing(1001.0) == 0
    assert ticking([0.0, 1.0]).n_missing(5.0) == 0
    assert Clock().n_missing(np.nan) == 0


def test_times_that_cannot_follow():
    clock = ticking([0.0, 1.5])
    with pytest.raises(ValueError, match=r"1\.0 comes before 1\.5"):
        clock.check(1.0, "number")
    with pytest.raises(ValueError, match=r"1\.5 repeats 1\.5"):
        clock.check(1.5, "number")
    time, kind = as_time("at", NOON)
    with pytest.raises(ValueError, match="a date and time, those before were a number"):
        clock.check(time, kind)
    with pytest.raises(ValueError, match=r"2024-02-29 12:00:00\.250000 repeats"):
        ticking([time], kind).check(time, kind)


def test_state_round_trip():
    clock = ticking([0.0, 1.0, 2.5, 3.0, 4.0])
    again = Clock.from_state(clock.state())
    assert (again.kind, again.last, again.step) == (clock.kind, clock.last, clock.step)
    assert_allclose(again.ahead(3), [5.0, 6.0, 7.0])
    empty = Clock.from_state(Clock().state())
    assert empty.kind is None and empty.step is None


# ---------------------------------------------------------------------------------------------- kinds of days


def days_from(day, n):
    return as_time("at", day)[0] + HOUR * np.arange(24.0 * n)


def test_weekends_and_holidays_are_of_one_kind():
    monday, holiday = datetime(2024, 5, 6), datetime(2024, 5, 9)
    calendar = Calendar(HOUR, frozenset([int(as_time("at", holiday)[0] // DAY)]))
    terms = calendar.terms(days_from(monday, 7))
    free = np.repeat([0, 0, 0, 1, 0, 1, 1], 24)
    assert_array_equal(terms[:, 4], free)
    assert_array_equal(terms[:, 5:], terms[:, :4] * free[:, None])


def test_days_alike_are_the_last_of_their_kind():
    monday, holiday = datetime(2024, 5, 6), datetime(2024, 5, 9)
    plain, told = Calendar(HOUR), Calendar(HOUR, frozenset([int(as_time("at", holiday)[0] // DAY)]))
    times = days_from(monday, 8)
    assert_array_equal(plain.alike(times)[::24], 24 * np.array([3, 1, 1, 1, 1, 6, 1, 3]))
    # The holiday is like the Sunday before it, the Friday after it like the Wednesday.
    assert_array_equal(told.alike(times)[::24], 24 * np.array([3, 1, 1, 4, 2, 2, 1, 3]))
    assert_array_equal(Calendar(DAY).alike(times), 0)


def test_rows_in_time_find_what_they_need_in_a_table():
    calendar, times = Calendar(HOUR), days_from(datetime(2024, 5, 3), 20)
    for time in [*times, times[5], times[7] + 1.0]:
        ahead = calendar.ahead(time, 6)
        steps = time + HOUR * np.arange(7.0)
        assert_array_equal(ahead.terms, Calendar(HOUR).terms(steps))
        assert_array_equal(ahead.alike, Calendar(HOUR).alike(steps))


def test_waves_of_a_season_go_round():
    assert_allclose(waves_of(7, 3, 10), waves_of(7, 10, 10), atol=1e-12)
    assert_allclose((waves_of(5, 0, 5).reshape(5, 2, 2) ** 2).sum(axis=2), 1.0)


def test_waves_are_zero_where_they_are():
    # At 6:00 the sine of the half day is 1e-16 by round-off.
    times = HOUR * np.arange(48.0)
    for terms in (Calendar(HOUR).terms(times), waves_of(24, 0, 24)):
        found = np.abs(terms)
        assert (found[found > 0.0] > 1e-3).all()
        assert (found == 0.0).any()
