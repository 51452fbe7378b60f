"""Every test has exactly one tier."""

from __future__ import annotations

import pytest

from conftest import ROOT, TIERS, tier_of

NAMES = {"unit", "contract", "system"}


def test_every_collected_test_has_exactly_one_tier(request):
    tiers = {item.nodeid: {mark.name for mark in item.iter_markers()} & NAMES for item in request.session.items}
    assert [test for test, found in tiers.items() if len(found) != 1] == []


def test_tiers_are_known():
    assert {*TIERS.values()} == NAMES


@pytest.mark.parametrize(
    ("path", "tier"),
    [
        ("momostream/gp/tuning.py", "unit"),
        ("tests/gp/test_tuning.py", "unit"),
        ("tests/estimators/test_river_regressor.py", "contract"),
        ("tests/engines/test_spark.py", "system"),
        ("tests/feeds/test_kafka.py", "system"),
        ("tests/feeds/test_outputs.py", "unit"),
        ("benchmarks/tests/test_main.py", "unit"),
    ],
)
def test_the_longest_path_counts(path, tier):
    assert tier_of(ROOT / path) == tier
