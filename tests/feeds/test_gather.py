"""Rows from values that come one by one."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime, timedelta

import pytest

from momostream.feeds import gather as gather_module
from momostream.feeds.formats import BadRow
from momostream.feeds.gather import Gather

START = datetime(2024, 3, 1, tzinfo=UTC)


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands until it is moved."""

    class Clock:
        now = 100.0

        def monotonic(self):
            return self.now

    found = Clock()
    monkeypatch.setattr(gather_module, "clock", found)
    return found


def drain(gather):
    rows = []
    while (row := gather.pop()) is not None:
        rows.append((row.key, row.time, row.values))
    return rows


def at(seconds):
    return START + timedelta(seconds=seconds)


def test_a_row_is_given_out_when_each_column_has_come_that_far(clock):
    gather = Gather(["a", "b"])
    assert gather.add("T", "a", 1, 1.0) and drain(gather) == []
    assert gather.add("T", "a", 2, 2.0) and gather.add("U", "b", 1, 9.0) and drain(gather) == []
    assert gather.add("T", "b", 2, 3.0)
    # Column b has passed time 1, of which nothing can come any more.
    assert drain(gather) == [("T", 1, {"a": 1.0}), ("T", 2, {"a": 2.0, "b": 3.0})]
    assert gather.n_partial == 1


def test_a_row_does_not_wait_for_a_silent_column(clock):
    gather = Gather(["a", "b"], wait="2s")
    gather.add("T", "a", 1, 1.0)
    clock.now += 1.0
    gather.add("T", "a", 2, 2.0)
    clock.now += 1.0
    assert drain(gather) == [("T", 1, {"a": 1.0})] and gather.unseen == {"b"}
    with pytest.raises(BadRow, match="too late: its row was written after 2 s") as error:
        gather.add("T", "b", 1, 5.0)
    assert error.value.column == "b" and gather.unseen == set()
    assert not gather.add("T", "b", 1, 5.0)
    clock.now += 1.0
    assert drain(gather) == [("T", 2, {"a": 2.0})]


def test_repeated_and_missing_values(clock):
    gather = Gather(["a", "b"])
    assert gather.add(None, "a", 1, None) and not gather.add(None, "a", 1, 4.0) and not gather.add(None, "a", 0, 4.0)
    assert gather.add(None, "b", 1, 2.0)
    assert drain(gather) == [(None, 1, {"b": 2.0})]


def test_ticks_have_the_last_value_up_to_their_time(clock):
    gather = Gather(["a", "b"], tick="10s")
    for second, value in [(1, 1.0), (5, 2.0), (10, 3.0), (11, 4.0)]:
        gather.add("T", "a", at(second), value)
    gather.add("T", "b", at(9), 7.0)
    assert drain(gather) == []
    gather.add("T", "b", at(12), 8.0)
    assert drain(gather) == [("T", at(10), {"a": 3.0, "b": 7.0})]
    clock.now += 11.9
    assert drain(gather) == []
    clock.now += 0.2
    assert drain(gather) == [("T", at(20), {"a": 4.0, "b": 8.0})]
    naive = Gather(["a"], tick="1min")
    naive.add("T", "a", datetime(2024, 3, 1, 0, 1), 1.0)
    assert drain(naive) == [("T", datetime(2024, 3, 1, 0, 1), {"a": 1.0})]


def test_a_column_that_only_sends_changes_is_held(clock):
    gather = Gather(["a", "b"], tick="10s", hold="20s")
    gather.add("T", "b", at(3), 7.0)
    for tick in range(5):
        gather.add("T", "a", at(10 * tick + 5), float(tick))
    clock.now += 100.0
    assert [values for _, _, values in drain(gather)] == [
        {"a": 0.0, "b": 7.0}, {"a": 1.0, "b": 7.0}, {"a": 2.0, "b": 7.0}, {"a": 3.0}, {"a": 4.0},
    ]  # fmt: skip


def test_a_value_that_is_known_to_be_missing_is_not_held(clock):
    gather = Gather(["a", "b"], tick="10s", hold="1h")
    for second, column, value in [(1, "a", 1.0), (2, "b", 2.0), (11, "b", None), (12, "a", 3.0), (21, "a", 4.0)]:
        gather.add("T", column, at(second), value)
    state = json.loads(json.dumps(gather.state))
    gather = Gather(["a", "b"], tick="10s", hold="1h")
    gather.restore(state)
    gather.add("T", "b", at(35), 5.0)
    clock.now += 100.0
    assert [values for _, _, values in drain(gather)] == [
        {"a": 1.0, "b": 2.0}, {"a": 3.0}, {"a": 4.0}, {"a": 4.0, "b": 5.0},
    ]  # fmt: skip


def test_a_value_from_before_is_held_from_now_on(clock):
    gather = Gather(["a", "b"], tick="10s", hold="1min")
    gather.seed("T", "b", at(-10_000), 7.0, at(0))
    gather.seed("T", "b", at(-20_000), 8.0, at(0))
    assert gather.last_time("T", "b") == at(-10_000) and gather.last_time("T", "a") is None
    gather.add("T", "a", at(5), 1.0)
    gather.add("T", "a", at(95), 2.0)
    clock.now += 100.0
    assert drain(gather) == [("T", at(10), {"a": 1.0, "b": 7.0}), ("T", at(100), {"a": 2.0})]


def test_times_that_cannot_be_gathered(clock):
    with pytest.raises(BadRow, match="a tick needs dates"):
        Gather(["a"], tick="10s").add("T", "a", 5.0, 1.0)
    gather = Gather(["a", "b"])
    gather.add("T", "a", START, 1.0)
    with pytest.raises(BadRow, match="the time is a number, and those before were each a date"):
        gather.add("T", "b", 5.0, 1.0)
    with pytest.raises(ValueError, match="not a span"):
        Gather(["a"], tick="soon")


def test_few_rows_wait(clock, monkeypatch):
    monkeypatch.setattr(gather_module, "MOST_OPEN", 5)
    gather = Gather(["a", "b"])
    for time in range(20):
        gather.add("T", "a", time, 1.0)
    assert [time for _, time, _ in drain(gather)] == list(range(15))


def test_a_state_does_not_change_with_what_comes_after_it(clock):
    gather = Gather(["a", "b"], tick="10s", hold="1min")
    gather.add("T", "a", at(1), 1.0)
    state = gather.state
    kept = json.dumps(state)
    for second in range(2, 40):
        gather.add("T", "a", at(second), 1.0)
        gather.add("T", "b", at(second), 1.0)
    drain(gather)
    assert json.dumps(state) == kept


@pytest.mark.parametrize("options", [{}, {"tick": "30s"}, {"tick": "20s", "hold": "1min"}])
def test_interrupted_at_any_value_it_gives_the_same_rows(clock, options):
    rng = random.Random(5)
    sent = [
        (key, column, at(10 * step + (rng.randrange(10) if options else 0)), rng.random())
        for step in range(60)
        for key in ("T", "U")
        for column in ("a", "b", "c")
        if rng.random() < 0.8
    ]

    def rows(stops):
        gather, found = Gather(["a", "b", "c"], **options), []
        for number, value in enumerate(sent):
            gather.add(*value)
            if number in stops:
                # Some rows are ready and not given out.
                if rng.random() < 0.5 and (row := gather.pop()):
                    found.append(tuple(row))
                state = json.loads(json.dumps(gather.state))
                gather = Gather(["a", "b", "c"], **options)
                gather.restore(state)
                assert not gather.add(*sent[number])
            found += drain(gather)
        clock.now += 1000.0
        return found + drain(gather)

    whole = rows(set())
    assert len(whole) >= 40 and rows(set(rng.sample(range(len(sent)), 40))) == whole
