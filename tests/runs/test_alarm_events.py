"""Alarms as events: one for an outage, of the right machine, the same after a stop, and in the inbox."""

from __future__ import annotations

import json
from datetime import datetime, timedelta

import numpy as np
import pytest

from momostream.feeds import Feed
from momostream.runs.fleet import Fleet
from momostream.runs.plan import Plan, make_model
from momostream.runs.run import Channel, Run
from momostream.serve.book import Book
from momostream.serve.config import FeedConfig
from momostream.serve.state import FeedState
from momostream.storage.store import Store

N_ROWS, OUTAGE = 260, range(200, 230)
PLAN = Plan(("power",), ("wind",), "time", key="turbine")


@pytest.fixture
def farm(tmp_path):
    """Two turbines; the second one trips for five hours."""
    rng = np.random.default_rng(0)
    lines = ["time,turbine,wind,power"]
    for n in range(N_ROWS):
        at = datetime(2024, 3, 1) + n * timedelta(minutes=10)
        for key in ("T1", "T2"):
            wind = 8 + np.sin(n / 20) + 0.2 * rng.normal()
            power = 0.0 if key == "T2" and n in OUTAGE else 100 * wind + 10 * rng.normal()
            lines.append(f"{at.isoformat()},{key},{wind:.3f},{power:.3f}")
    path = tmp_path / "farm.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def take(path, store, limit=None, state=None, rate="1 per month", memory=1 << 30):
    model = make_model(PLAN)
    with (
        Store(store) as opened,
        Fleet(model, store=opened, memory_budget=memory) as fleet,
        Feed(str(path), ("power", "wind"), "time", key="turbine") as feed,
    ):
        said = []
        run = Run(feed, fleet, PLAN, false_alarms=rate, on_alarm=said.append, bad_rows="skip", commit_every=50)
        run.alarms = Channel("alarms")
        if state is not None:
            state.begin(run, Book(None))
        run.run(limit)
        assert list(fleet) == ["T1", "T2"] and len(fleet) == 2
        return said


def events(store):
    with Store(store, read_only=True) as reader:
        assert reader.keys() == list(reader.rows()) == ["T1", "T2"] and len(reader) == 2
        return [json.loads(line.text) for _, line in reader.alarms()]


def test_an_outage_is_one_event(farm, tmp_path):
    state = FeedState(FeedConfig("farm"))
    said = take(farm, tmp_path / "a.db", state=state)
    begin, end = events(tmp_path / "a.db")
    assert (begin["key"], begin["open"], begin["end"], begin["event"]) == ("T2", True, None, OUTAGE.start + 1)
    assert (end["key"], end["open"], end["event"]) == ("T2", False, OUTAGE.start + 1)
    assert begin["begin"] == end["begin"] == "2024-03-02T09:20:00"
    assert datetime(2024, 3, 2, 14, 10) <= datetime.fromisoformat(end["end"]) <= datetime(2024, 3, 2, 19)
    assert begin["columns"]["power"]["observed"] == 0.0 and 600 < begin["columns"]["power"]["expected"] < 1000
    assert len(said) == 2 and said[0].startswith("alarm T2: ") and said[1].startswith("alarm ended T2: ")
    (record,) = state.alarms.records.values()
    assert (record.name, record.kind, record.severity, record.is_open) == ("T2", "event", "critical", False)
    assert record.columns[0] == "power" and record.why.startswith("power was ")


@pytest.mark.parametrize("memory", [0, 1 << 30])
def test_events_resume_exactly(farm, tmp_path, memory):
    take(farm, tmp_path / "whole.db")
    for limit in (411, 30, None):
        take(farm, tmp_path / "parts.db", limit, memory=memory)
    assert events(tmp_path / "parts.db") == events(tmp_path / "whole.db")


def test_the_rate_may_change_and_wrong_ones_are_named(farm, tmp_path):
    take(farm, tmp_path / "a.db", 300)
    take(farm, tmp_path / "a.db", 10, rate="1 per year")
    with Store(tmp_path / "a.db") as store, Fleet(make_model(PLAN), store=store) as fleet:
        (beside, _) = (key for key in store.keys(side=True) if key not in {"T1", "T2"})
        assert fleet.model(beside).false_alarms == "1 per year"
    with pytest.raises(ValueError, match="false_alarms='often' is not accepted"):
        take(farm, tmp_path / "a.db", rate="often")
