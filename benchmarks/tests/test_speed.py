"""The benchmark of cost: its feed, its clock, its targets and its report."""

from __future__ import annotations

import json
from itertools import islice

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from benchmarks import speed
from benchmarks.tools import speed_cases
from momostream import MOMoGPRegressor


def test_frames_hold_the_rows_of_the_feed():
    n_rows = speed.CHUNK + 2 * speed.FRAME
    singly = list(islice(speed.rows(), n_rows))
    inputs, targets = zip(*speed.frames(n_rows + 1), strict=True)
    assert [len(frame) for frame in inputs] == [speed.FRAME] * (n_rows // speed.FRAME)
    for part, frames in enumerate((inputs, targets)):
        values = np.concatenate([frame.to_numpy() for frame in frames])
        assert_array_equal(values, [[*row[part].values()] for row in singly])


def test_the_feed_drifts():
    parts = list(islice(speed.chunks(), 20))
    X = np.concatenate([X for X, _ in parts])
    Y = np.concatenate([Y for _, Y in parts])

    def error(fit: slice, test: slice) -> float:
        coefficients = np.linalg.lstsq(np.c_[X[fit], np.ones(len(X[fit]))], Y[fit], rcond=None)[0]
        return float(np.mean((Y[test] - np.c_[X[test], np.ones(len(X[test]))] @ coefficients) ** 2))

    late = slice(-2048, None)
    assert error(slice(-4096, -2048), late) < 0.9 * error(slice(0, 2048), late)


def test_too_few_rows_are_refused(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["speed", "--rows", "10"])
    with pytest.raises(SystemExit):
        speed.main()
    assert "--rows must be at least" in capsys.readouterr().err


def test_each_model_is_served_each_row():
    models = [MOMoGPRegressor(seed=0, tuning_evaluations=0) for _ in range(2)]
    times = speed.serve(models, speed.rows(), 5)
    assert times.shape == (2, 5, 2)
    assert [model.n_rows for model in models] == [5, 5]
    # Even a first prediction, of nothing, takes longer than a look at the clock, on the whole.
    assert times.sum() > 0.0


@pytest.mark.parametrize(
    ("target", "verdict"),
    [
        (speed.at_most("pause", 10.0, 10.0), "* PASS: pause 10 (target <= 10)"),
        (speed.at_most("pause", 10.1, 10.0), "* MISS: pause 10.1 (target <= 10)"),
        (speed.at_least("speed-up", 3.0, 3.0), "* PASS: speed-up 3 (target >= 3)"),
        (speed.at_least("speed-up", 2.9, 3.0), "* MISS: speed-up 2.9 (target >= 3)"),
        (speed.at_most("pause", float("nan"), 10.0), "* MISS: pause nan (target <= 10)"),
    ],
)
def test_the_report_says_whether_a_target_is_met(target, verdict):
    found = {"question": "row", "rows": 6000, "revision": "abc", **speed.answer(["a"], [[1234.5]], [target])}
    text = speed.report([found])
    assert verdict in text.splitlines()
    assert "| 1,234 |" in text


def test_the_report_shows_the_newest_answer():
    old, new = (
        {"question": "row", "rows": rows, "revision": "abc", **speed.answer(["a"], [], [])} for rows in (111, 222)
    )
    text = speed.report([old, new])
    assert "Rows: 222" in text
    assert "Rows: 111" not in text


def test_a_budget_that_changes_predictions_is_found(monkeypatch):
    class Liar(MOMoGPRegressor):
        def predict_one(self, x, with_dist=False, id=None):
            found = super().predict_one(x, with_dist, id)
            lies = self.memory_budget is not None and self.n_rows == 1500
            return {name: np.nextafter(value, np.inf) for name, value in found.items()} if lies else found

    monkeypatch.setattr(speed, "MOMoGPRegressor", Liar)
    target = speed.budget(1600)["targets"][0]
    assert target["figure"] == 1000
    assert not target["passed"]


def test_a_budget_that_changes_nothing_passes():
    assert speed.budget(150)["targets"][0]["passed"]


@pytest.mark.parametrize("case", speed.CASES)
def test_cases_that_are_compared_with_an_earlier_checkout_run(case):
    assert min(speed_cases.measure(case, 24).values()) > 0.0


def test_the_comparison_says_how_much_was_gained(monkeypatch):
    def run(command, **options):
        is_before = options["env"]["PYTHONPATH"] == "elsewhere"
        figures = {"median": 100.0, "mean": 100.0, "first": 100.0, "interval": 300.0}
        return json.dumps({name: value * (1.0 if is_before else 0.5) for name, value in figures.items()})

    monkeypatch.setenv("MOMOSTREAM_BEFORE", "elsewhere")
    monkeypatch.setattr(speed.subprocess, "check_output", run)
    found = speed.before(10)
    assert {line[4] for line in found["lines"]} == {0.5}
    passed = {target["what"]: target["passed"] for target in found["targets"]}
    assert passed["regressor row, mean over before"]
    assert not passed["regressor row, median over before"]
    assert passed["interval of a 7 x 24 forecast, ms"]
    assert not passed["means of 1,000 rows: speed-up"]
