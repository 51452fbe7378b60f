"""Rates of false alarms as numbers and as texts."""

from __future__ import annotations

import math

import pytest

from momostream.monitor.rates import Rate


@pytest.mark.parametrize(
    ("given", "rate"),
    [
        (0.01, Rate(0.01, None)),
        ("1 per 5000 rows", Rate(1 / 5000, None)),
        ("3 per 100 Row", Rate(0.03, None)),
        ("1 per week", Rate(None, 1 / 604800)),
        (" 2 per 10 days ", Rate(None, 2 / 864000)),
        ("0.5 per hour", Rate(None, 0.5 / 3600)),
    ],
)
def test_rates_are_read(given, rate):
    found = Rate.read(given)
    assert [value or 0.0 for value in found] == pytest.approx([value or 0.0 for value in rate])


@pytest.mark.parametrize(
    "wrong",
    [0, 1, 1.5, -0.1, True, None, "often", "1 per fortnight", "0 per day", "1 per 0 rows", "2 per row", math.nan],
)
def test_other_rates_are_errors(wrong):
    with pytest.raises(ValueError, match="false_alarms=.* is not accepted: use a share of rows"):
        Rate.read(wrong)


def test_thresholds():
    assert Rate.read(0.001).threshold(None) == pytest.approx(3.0)
    # 10,080 minutes are a week.
    assert Rate.read("1 per week").threshold(60.0) == pytest.approx(math.log10(10080))
    assert Rate.read("1 per week").threshold(None) == math.inf
    # Rows come once a year: every second one may be an alarm.
    assert Rate.read("1 per week").threshold(365.25 * 86400) == pytest.approx(math.log10(2))
