"""Workers: the same output, models and alarms as one process, whatever the memory, the commits and the stops."""

from __future__ import annotations

from dataclasses import replace

import pytest

from momostream.runs.run import Channel
from momostream.runs.workers import Workers
from momostream.storage.store import Store
from tests.runs.test_fleet_runs import FORECAST, PLANS, REGRESSION, farm, kept, take  # noqa: F401 - a fixture

pytestmark = pytest.mark.system


@PLANS
def test_workers_write_what_one_process_writes(farm, tmp_path, plan):  # noqa: F811
    whole = take(farm, plan)
    one, two = tmp_path / "one.db", tmp_path / "two.db"
    for store, options in ((one, {}), (two, {"workers": 2})):
        run = take(farm, plan, store, alarms=Channel("alarms"), alarm_level=0.95, commit_every=150, **options)
        assert run.n_rows == whole.n_rows and len(run.fleet) == len(whole.fleet)
    assert kept(two) == kept(one)
    assert kept(two)[1] == whole.text
    alarms = [[alarm for _, alarm in reader.alarms()] for reader in map(Store, (one, two))]
    assert alarms[0] == alarms[1] and alarms[0]


def test_models_come_and_go_while_memory_is_short(farm, tmp_path):  # noqa: F811
    whole, store = take(farm, REGRESSION), tmp_path / "farm.db"
    # With one worker, then two, then none; no worker keeps a second model.
    for limit, options in ((90, {"workers": 1}), (170, {"workers": 2, "false_alarms": 0.01}), (None, {})):
        run = take(farm, REGRESSION, store, memory_budget=0, limit=limit, alarms=Channel("alarms"), **options)
    states, outputs, _ = kept(store)
    assert outputs == whole.text and states == whole.states == run.states


def test_rows_that_are_not_due_are_forecast_at_the_end(farm, tmp_path):  # noqa: F811
    plan, stores = replace(FORECAST, every=30), (tmp_path / "one.db", tmp_path / "two.db")
    for store, workers in zip(stores, ((None, None), (2, 3)), strict=True):
        for limit, n in zip((200, None), workers, strict=True):
            take(farm, plan, store, workers=n, limit=limit)
    assert kept(stores[0]) == kept(stores[1])


def test_bad_rows_of_a_model_are_rejected(farm, tmp_path):  # noqa: F811
    lines = farm.read_text().splitlines()
    late = tmp_path / "late.csv"
    late.write_text("\n".join([*lines[:200], lines[5], *lines[200:]]) + "\n")
    stores = tmp_path / "one.db", tmp_path / "two.db"
    runs = [take(late, REGRESSION, store, workers=n) for store, n in zip(stores, (None, 2), strict=True)]
    assert [run.n_bad for run in runs] == [1, 1]
    assert kept(stores[0]) == kept(stores[1])


def test_a_worker_that_dies_ends_the_run(farm, tmp_path, monkeypatch):  # noqa: F811
    sent = Workers._send_next

    def send_and_kill(self, worker, *rest):
        sent(self, worker, *rest)
        worker.process.kill()

    store = tmp_path / "farm.db"
    take(farm, REGRESSION, store, workers=1, limit=100)
    before = kept(store)
    with monkeypatch.context() as patch:
        patch.setattr(Workers, "_send_next", send_and_kill)
        with pytest.raises(RuntimeError, match="a worker has ended unexpectedly"):
            take(farm, REGRESSION, store, workers=1)
    assert kept(store) == before
    assert take(farm, REGRESSION, store).states == take(farm, REGRESSION).states


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"workers": 0}, "workers=0 is not accepted"),
        ({"workers": 2, "alarm_rules": ["power < 1 within 2"]}, "combined"),
    ],
)
def test_what_workers_cannot_do(farm, options, message):  # noqa: F811
    with pytest.raises(ValueError, match=message):
        take(farm, FORECAST, **options)


def test_workers_need_keys(farm):  # noqa: F811
    with pytest.raises(ValueError, match="workers share the keys of a feed"):
        take(farm, replace(REGRESSION, key=None), workers=2)
