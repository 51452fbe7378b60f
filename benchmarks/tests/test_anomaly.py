"""Thresholds are chosen on normal rows and even runs; quality counts rows as the protocol says."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.tools import faults
from benchmarks.tools.faults import JudgedRun, chosen, quality

CALM = JudgedRun(np.zeros(0), np.zeros(0, dtype=bool))


def run_of(seed, shift=3.0, n=400):
    is_fault = np.arange(n) >= n // 2
    return JudgedRun(np.random.default_rng(seed).normal(size=n) + shift * is_fault, is_fault)


def test_quality_counts_rows():
    for seed in range(5):
        run = run_of(seed, 1.0)
        found, alarm = quality([run, run], 0.7), run.scores >= 0.7
        right, wrong, missed = (
            int(part.sum()) for part in (alarm & run.is_fault, alarm & ~run.is_fault, ~alarm & run.is_fault)
        )
        assert found["f1"] == pytest.approx(right / (right + 0.5 * (wrong + missed)))
        assert found["false"] == pytest.approx(wrong / 200) and found["found"] == pytest.approx(right / 200)
        assert found["median delay"] == np.flatnonzero(alarm[200:])[0]
    assert quality([run], 99.0)["median delay"] == np.inf


@pytest.mark.parametrize("most", [0.01, 0.05, 0.2])
def test_the_choice_keeps_false_alarms_and_is_the_best_that_does(most):
    runs, calm = [run_of(0, 1.5), run_of(1, 1.5)], JudgedRun(1.2 * run_of(2, 0.0).scores, np.zeros(400, dtype=bool))
    choice = chosen(runs, calm, (1,), most)
    found = quality(runs, choice.threshold)
    assert found["false"] <= most and (calm.scores >= choice.threshold).mean() <= most
    for threshold in np.linspace(-1.0, 4.0, 300):
        other = quality(runs, threshold)
        if other["false"] <= most and (calm.scores >= threshold).mean() <= most:
            assert other["f1"] <= found["f1"] + 0.01


def test_means_are_chosen_where_they_help():
    assert chosen([run_of(0, 1.0)], CALM, (1, 10), 0.05).span == 10
    averaged = run_of(0).averaged(10).scores
    assert averaged[4] == pytest.approx(run_of(0).scores[:5].mean())
    assert averaged[50] == pytest.approx(run_of(0).scores[41:51].mean())


@pytest.mark.parametrize("title", faults.DETECTORS)
def test_detectors_see_a_shift_that_lasts(title):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(300, 4)) @ rng.normal(size=(4, 4))
    shifted = rows[200:] + 5.0 * rows.std(axis=0)
    detector = faults.DETECTORS[title][0]()
    detector.learn(rows[:200])
    assert np.median(detector.scores(shifted)) > np.quantile(detector.scores(rows[200:]), 0.9)
