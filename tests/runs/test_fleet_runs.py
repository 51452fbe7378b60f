"""Runs over many machines: each key as if it were alone, whatever the blocks, the memory and the interruptions."""

from __future__ import annotations

import gzip
import io
import json
import os
import threading
import time
from dataclasses import replace
from random import Random
from types import SimpleNamespace

import pytest

from momostream.feeds import Feed, FeedError, Folder, Rejected, Row
from momostream.feeds.outputs import PredictionLines, Sink
from momostream.runs.channels import Channels
from momostream.runs.commits import Commits
from momostream.runs.fleet import Fleet
from momostream.runs.plan import WATCH_ROWS, Plan, make_model
from momostream.runs.run import Channel, Run, in_share
from momostream.storage.blocks import Parts
from momostream.storage.store import Store, StoreError

REGRESSION = Plan(("power", "load"), ("wind",), "time", key="turbine")
FORECAST = Plan(("power", "load"), (), "time", horizon=2, key="turbine")
PLANS = pytest.mark.parametrize("plan", [REGRESSION, FORECAST], ids=["regression", "forecast"])
SETTINGS = {
    None: {"experts": ("matern32",), "max_points": 32, "tuning_evaluations": 4},
    2: {"experts": ("last value", "own lags")},
}


def lines(n=400, n_keys=5, seed=0):
    """Rows of turbines in no regular order."""
    random, counts = Random(seed), [0] * n_keys
    for _ in range(n):
        k = random.randrange(n_keys)
        counts[k] += 1
        wind = random.gauss(8.0, 2.0)
        at = f"2024-03-{1 + counts[k] // 144:02d}T{counts[k] // 6 % 24:02d}:{counts[k] % 6}0:00"
        yield f"{at},T{k},{wind:.3f},{wind**2:.3f},{wind + random.random():.3f}"


HEADER = "time,turbine,wind,power,load"


@pytest.fixture
def farm(tmp_path):
    path = tmp_path / "farm.csv"
    path.write_text("\n".join([HEADER, *lines()]) + "\n")
    return path


def template(plan):
    return make_model(plan, SETTINGS[plan.horizon])


def take(source, plan, store=None, *, memory_budget=1 << 30, limit=None, alarms=None, dead=None, out=None, **options):
    """Run to the end; everything that came of it."""
    kept = None if store is None else Store(store)
    feed = source if not isinstance(source, str | os.PathLike) else Feed(source, plan.columns, plan.time, key=plan.key)
    with feed, Fleet(template(plan), store=kept, memory_budget=memory_budget, warm_start=False) as fleet:
        run = Run(feed, fleet, plan, bad_rows="skip", **options)
        run.lines = PredictionLines(plan.targets, plan.horizon is not None, "jsonl", plan.key)
        stream = io.BytesIO()
        sink = None if store is not None and out is None else Sink(out or stream, None, run.written("outputs"))
        run.predictions, run.alarms, run.dead = Channel("outputs", sink), alarms, dead
        run.run(limit)
        if sink is not None:
            sink.close()
        run.states = {key: Parts.of(fleet.model(key)) for key in fleet}
        run.text = stream.getvalue().decode().splitlines()
        return run


def kept(store):
    """Models, outputs and dead letters of a store."""
    with Store(store, read_only=True) as reader:
        states = {key: Parts.of(reader.load(key)) for key in reader.keys()}
        outputs = [output.text for _, output in reader.outputs()]
        return states, outputs, [letter for _, letter in reader.dead()]


@PLANS
def test_each_key_is_as_if_it_were_alone(farm, tmp_path, plan):
    together = take(farm, plan)
    for key in ("T0", "T3"):
        alone = tmp_path / "alone.csv"
        alone.write_text("\n".join([HEADER, *(line for line in lines() if f",{key}," in line)]) + "\n")
        run = take(alone, plan)
        assert run.states[key] == together.states[key]
        mine = [json.loads(text) for text in together.text]
        mine = [{**line, "row": 0} for line in mine if line["turbine"] == key]
        assert mine == [{**json.loads(text), "row": 0} for text in run.text]


@PLANS
@pytest.mark.parametrize(
    "options", [{"commit_every": 7}, {"memory_budget": 0}, {"commit_every": 50, "memory_budget": 0}]
)
def test_blocks_and_memory_change_nothing(farm, tmp_path, plan, options):
    whole = take(farm, plan)
    run = take(farm, plan, tmp_path / "farm.db", **options)
    states, outputs, _ = kept(tmp_path / "farm.db")
    assert outputs == whole.text and states == whole.states == run.states
    assert [json.loads(text)["row"] for text in outputs] == sorted(json.loads(text)["row"] for text in outputs)


@PLANS
def test_a_run_in_pieces_is_a_run(farm, tmp_path, plan):
    whole = take(farm, plan)
    store, out = tmp_path / "farm.db", tmp_path / "out.jsonl"
    for limit in (1, 33, 100, 150, None):
        run = take(farm, plan, store, limit=limit, out=out, memory_budget=200_000, commit_every=40)
    assert run.n_rows == 400
    assert out.read_text().splitlines() == whole.text and kept(store)[0] == whole.states
    # At the end there is nothing more to do.
    assert take(farm, plan, store, out=out).n_rows == 400
    assert out.read_text().splitlines() == whole.text


def test_a_key_that_fell_silent_before_a_stop_still_gets_its_last_forecast(farm, tmp_path):
    """The newest row of each key is forecast at the end, also by a run that resumed after it."""
    silent = [line for n, line in enumerate(lines()) if n < 150 or ",T2," not in line]
    farm.write_text("\n".join([HEADER, *silent]) + "\n")
    plan = replace(FORECAST, every=7)
    whole = take(farm, plan)
    assert sum('"T2"' in text for text in whole.text[-5:]) == 1
    # A run that is told to stop forecasts nothing at its end.
    store, out = tmp_path / "farm.db", tmp_path / "out.jsonl"
    feed = Feed(farm, plan.columns, plan.time, key=plan.key)
    with feed, Fleet(template(plan), store=Store(store), warm_start=False) as fleet, Sink(out, None) as sink:
        run = Run(feed, fleet, plan, bad_rows="skip", commit_every=20)
        run.lines = PredictionLines(plan.targets, True, "jsonl", plan.key)
        run.predictions = Channel("outputs", sink)
        run.run(on_row=lambda run: run.stop() if run.n_rows > 250 else None)
    take(farm, plan, store, out=out)
    assert out.read_text().splitlines() == whole.text


def test_rows_that_cannot_be_used_are_dead_letters(tmp_path):
    path, store = tmp_path / "farm.jsonl", tmp_path / "farm.db"
    good = {"time": "2024-03-01T00:00", "turbine": "T1", "wind": 7.0, "power": 49.0, "load": 7.5}
    later = good | {"time": "2024-03-01T00:10"}
    bad = [
        ({**later, "turbine": None}, "the key is missing"),
        ({k: v for k, v in later.items() if k != "turbine"}, "the key is missing"),
        ({**later, "turbine": 3.5}, "invalid key"),
        ({**later, "turbine": ["T1"]}, "invalid key"),
        ({**later, "turbine": True}, "invalid key"),
        ({**later, "power": "full"}, "'full' is text, not a number"),
        ({**later, "power": 1e300}, "1e+300"),
        ({**later, "time": None}, "the time is missing"),
        (good, "is not after that of the row before"),
    ]
    rows = [good, *(row for row, _ in bad), later, {**later, "turbine": 17}]
    text = [json.dumps(row) for row in rows]
    text.insert(4, "{broken")
    path.write_text("\n".join(text) + "\n")
    stream = io.BytesIO()
    for _ in range(2):
        run = take(path, REGRESSION, store, dead=Channel("dead", Sink(stream)))
        assert (run.n_rows, run.n_bad) == (3, len(bad) + 1)
    states, outputs, letters = kept(store)
    assert {key: parts.n_rows for key, parts in states.items()} == {17: 1, "T1": 2}
    assert len(outputs) == 1
    reasons = [reason for _, reason in bad]
    reasons.insert(3, "is not JSON")
    assert len(letters) == len(reasons)
    for letter, reason in zip(letters, reasons, strict=True):
        assert reason in letter.reason and letter.source == "farm.jsonl"
    # The offset says where to look, and the key is told where it is known.
    assert path.read_bytes()[: letters[0].offset].decode().splitlines()[-1] == letters[0].row == text[1]
    assert [letter.key for letter in letters] == [None] * 6 + ["T1"] * 4
    told = [json.loads(line) for line in stream.getvalue().decode().splitlines()]
    assert [(line["offset"], line["reason"]) for line in told] == [(letter.offset, letter.reason) for letter in letters]


def test_parts_of_the_keys_make_the_whole(farm, tmp_path):
    whole = take(farm, REGRESSION)
    parts = [take(farm, REGRESSION, tmp_path / f"{part}.db", share=(part, 2)) for part in (1, 2)]
    states = [kept(tmp_path / f"{part}.db")[0] for part in (1, 2)]
    assert states[0].keys().isdisjoint(states[1]) and states[0] | states[1] == whole.states
    assert all(states) and sum(run.n_rows for run in parts) == 400
    assert all(in_share(key, (1, 2)) for key in states[0])


@PLANS
def test_unexpected_values_are_alarms(tmp_path, plan):
    path, store = tmp_path / "farm.csv", tmp_path / "farm.db"
    text = [line.split(",") for line in lines(300, n_keys=2)]
    mine, other = ([cells for cells in text if cells[1] == key] for key in ("T1", "T0"))
    mine[100][3] = other[10][3] = "9999"
    path.write_text("\n".join([HEADER, *map(",".join, text)]) + "\n")
    for limit in (150, None):
        take(path, plan, store, alarms=Channel("alarms"), limit=limit, alarm_level=0.9999)
    with Store(store, read_only=True) as reader:
        alarms = [json.loads(alarm.text) for _, alarm in reader.alarms()]
    # The other one came before its model knew what to expect.
    assert WATCH_ROWS > 10
    assert [alarm for alarm in alarms if alarm["value"] == 9999.0] == [
        alarm
        for alarm in alarms
        if alarm["key"] == "T1" and alarm["time"] == mine[100][0] and alarm["target"] == "power"
    ]
    assert len([alarm for alarm in alarms if alarm["value"] == 9999.0]) == 1 and len(alarms) < 12
    with pytest.raises(ValueError, match="alarm_level=1.0"):
        take(path, plan, alarm_level=1.0)


def test_a_folder_is_a_feed_that_resumes(tmp_path):
    folder, store = tmp_path / "days", tmp_path / "farm.db"
    folder.mkdir()
    text = list(lines())
    for number, begin in enumerate(range(0, 400, 100)):
        (folder / f"day-{number}.csv").write_text("\n".join([HEADER, *text[begin : begin + 100]]) + "\n")
    (folder / "notes.md").write_text("not a feed")
    (folder / ".hidden.csv").write_text("not a feed")
    (tmp_path / "whole.csv").write_text("\n".join([HEADER, *text]) + "\n")
    whole = take(tmp_path / "whole.csv", REGRESSION)

    def feed():
        return Folder(folder, REGRESSION.columns, "time", key="turbine")

    for limit in (50, 50, 130, None):
        run = take(feed(), REGRESSION, store, limit=limit)
    states, outputs, _ = kept(store)
    assert states == whole.states and outputs == whole.text
    (folder / "day-4.csv").write_text("\n".join([HEADER, text[-1].replace("2024", "2025")]) + "\n")
    run = take(feed(), REGRESSION, store)
    assert run.n_rows == 401 and run.last.number == 401
    (folder / "day-4.csv").unlink()
    with pytest.raises(ValueError, match="the last run stopped is missing: day-4.csv"):
        take(feed(), REGRESSION, store)


def follow(feed, n, appended):
    """Events of a feed that is followed, while lines are appended; None is left out."""
    found = []
    thread = threading.Thread(target=appended)
    thread.start()
    began = time.monotonic()
    for event in feed.events():
        assert time.monotonic() - began < 120.0
        if event is not None:
            found.append(event)
        if len(found) == n:
            break
    thread.join()
    return found


def test_a_file_that_grows_is_followed(tmp_path):
    path = tmp_path / "farm.csv"
    text = list(lines(5))
    path.write_text(f"{HEADER}\n{text[0]}\n{text[1][:9]}")

    def append():
        for part in (text[1][9:20], text[1][20:] + "\n" + text[2] + "\n", text[3] + "\n"):
            time.sleep(0.3)
            with path.open("a") as file:
                file.write(part)

    with Feed(path, ["power"], "time", key="turbine", follow=True) as feed:
        found = follow(feed, 4, append)
        assert [event.number for event in found] == [1, 2, 3, 4] and feed.is_live
        assert [f"{event.values['power']:.3f}" for event in found] == [line.split(",")[3] for line in text[:4]]
        position = feed.position
    with Feed(path, ["power"], "time", key="turbine") as feed:
        feed.seek(position)
        assert list(feed.events()) == []
    with Feed(path, ["power"], "time", key="turbine", follow=True) as feed:
        events = feed.events()
        assert [next(events).number for _ in range(4)] == [1, 2, 3, 4]
        path.write_text(HEADER + "\n")
        with pytest.raises(ValueError, match="was truncated"):
            for _ in range(3):
                next(events)


def test_a_folder_that_grows_is_followed(tmp_path):
    text = list(lines(6))
    (tmp_path / "a.csv").write_text(f"{HEADER}\n{text[0]}\n")

    def append():
        time.sleep(0.3)
        with (tmp_path / "a.csv").open("a") as file:
            file.write(text[1] + "\n" + text[2])
        time.sleep(0.3)
        (tmp_path / "b.csv").write_text(f"{HEADER}\n{text[3]}\n")

    with Folder(tmp_path, ["power"], "time", key="turbine", follow=True) as feed:
        found = follow(feed, 4, append)
    assert [event.number for event in found] == [1, 2, 3, 4]
    assert [f"{event.values['power']:.3f}" for event in found] == [line.split(",")[3] for line in text[:4]]


def test_a_pipe_reports_its_end():
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb") as source, os.fdopen(writer, "wb", buffering=0) as end:
        end.write(f"{HEADER}\n{next(lines())}\n".encode())
        with Feed(source, ["power"], "time", key="turbine") as feed:
            events = feed.events()
            assert isinstance(next(events), Row) and feed.is_live
            assert next(events) is None
            end.write(b"x,T1,1,2,3\n")
            assert isinstance(next(events), Rejected)
            end.close()
            assert next(events, "end") == "end"


def test_a_followed_folder_continues_after_a_file_without_its_last_newline(tmp_path):
    (tmp_path / "a.csv").write_text("power\n1\n2")
    with Folder(tmp_path, ["power"], None, follow=True) as feed:
        assert [event.values for event in follow(feed, 1, lambda: None)] == [{"power": 1.0}]
        # Its rows may come much later.
        (tmp_path / "b.csv").write_text("power\n")
        assert [event.values for event in follow(feed, 1, lambda: None)] == [{"power": 2.0}]
        position = feed.position
    (tmp_path / "b.csv").write_text("power\n3\n")
    with Folder(tmp_path, ["power"], None, follow=True) as feed:
        feed.seek(position)
        (event,) = follow(feed, 1, lambda: None)
        assert (event.number, event.values) == (3, {"power": 3.0})


@pytest.mark.parametrize("is_followed", [True, False])
def test_a_file_of_a_folder_that_was_compressed_is_the_same_file(tmp_path, is_followed):
    def packed(name):
        (tmp_path / f"{name}.gz").write_bytes(gzip.compress((tmp_path / name).read_bytes()))
        (tmp_path / name).unlink()

    (tmp_path / "a.csv").write_text("power\n1\n2\n")
    with Folder(tmp_path, ["power"], None, follow=is_followed) as feed:
        events = feed.events()
        assert [next(events).values["power"] for _ in range(2)] == [1.0, 2.0]
        position = feed.position
        packed("a.csv")
        assert next(events, None) is None
        (tmp_path / "b.csv").write_text("power\n3\n")
        if is_followed:
            assert [event.values["power"] for event in follow(feed, 1, lambda: None)] == [3.0]
    for _ in range(2):
        with Folder(tmp_path, ["power"], None) as feed:
            feed.seek(position)
            assert [(event.number, event.values["power"]) for event in feed.events()] == [(3, 3.0)]
        # Both are there while it is compressed.
        (tmp_path / "a.csv").write_text("power\n1\n2\n")


def test_files_that_come_and_go_do_not_end_a_folder(tmp_path, monkeypatch):
    (tmp_path / "a.csv").write_text("power\n1\n")
    monkeypatch.setattr(os, "listdir", lambda path, found=os.listdir: [*found(path), "b.csv", "c.csv.tmp"])
    with Folder(tmp_path, ["power"], None) as feed:
        assert [event.values for event in feed.events()] == [{"power": 1.0}]
        assert feed.size == 8


def test_objects_of_a_later_file_may_lack_a_reading(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"power": 1, "wind": 2}\n')
    (tmp_path / "b.jsonl").write_text('{"power": 3}\n')
    with Folder(tmp_path, ["power", "wind"], None) as feed:
        assert [event.values for event in feed.events()] == [{"power": 1.0, "wind": 2.0}, {"power": 3.0}]
    (tmp_path / "c.csv").write_text("power\n4\n")
    with Folder(tmp_path, ["power", "wind"], None) as feed:
        assert [event.values for event in feed.events()][-1] == {"power": 4.0}


class Broker:
    """An outlet that is away now and then, and takes a part only."""

    def __init__(self, takes):
        self.takes, self.got = list(takes), []

    def send(self, lines):
        lines = list(lines)[: self.takes.pop(0) if self.takes else None]
        self.got += lines
        return lines[-1][0] if lines else 0

    def close(self):
        pass


def test_texts_for_a_broker_wait_in_the_store_until_they_have_arrived(farm, tmp_path):
    whole, store = take(farm, REGRESSION), tmp_path / "farm.db"
    broker = Broker([0, 3, 50, 0])
    with Feed(farm, REGRESSION.columns, "time", key="turbine") as feed:
        with Fleet(template(REGRESSION), store=Store(store)) as fleet:
            run = Run(feed, fleet, REGRESSION, bad_rows="skip", commit_every=80)
            run.lines = PredictionLines(REGRESSION.targets, False, "jsonl", "turbine")
            run.predictions = Channel("outputs", broker)
            run.run()
    assert [number for number, _, _ in broker.got] == list(range(1, 396))
    assert [text for _, _, text in broker.got] == whole.text
    assert kept(store)[1] == []


def test_a_broker_that_was_away_gets_the_rest_from_the_next_run(farm, tmp_path):
    whole, store = take(farm, REGRESSION), tmp_path / "farm.db"
    got = []
    for takes in ([0] * 9, [5, *[0] * 9], []):
        broker = Broker(takes)
        with Feed(farm, REGRESSION.columns, "time", key="turbine") as feed:
            with Fleet(template(REGRESSION), store=Store(store)) as fleet:
                run = Run(feed, fleet, REGRESSION, bad_rows="skip", commit_every=80)
                run.lines = PredictionLines(REGRESSION.targets, False, "jsonl", "turbine")
                run.predictions = Channel("outputs", broker)
                run.run(limit=150)
        got += broker.got
    # What was sent before a crash may come twice, with its number.
    assert [text for _, _, text in sorted(set(got))] == whole.text


def test_texts_for_a_broker_are_sent_when_no_row_comes(farm, tmp_path):
    store = tmp_path / "farm.db"
    take(farm, REGRESSION, store)
    for takes, n_got in (([0] * 9, 0), ([], 395)):
        broker = Broker(takes)
        with Feed(farm, REGRESSION.columns, "time", key="turbine") as feed:
            with Fleet(template(REGRESSION), store=Store(store)) as fleet:
                run = Run(feed, fleet, REGRESSION, bad_rows="skip")
                run.lines, run.predictions = (
                    PredictionLines(REGRESSION.targets, False, "jsonl", "turbine"),
                    Channel("outputs", broker),
                )
                run.run(0)
        assert len(broker.got) == n_got
    assert kept(store)[1] == []


def test_a_delivery_commits_no_model_without_the_position_of_the_feed(farm, tmp_path, monkeypatch):
    from momostream.runs import commits
    from momostream.runs import run as running

    class Halting(Feed):
        def events(self):
            for event in super().events():
                yield event
                yield None

    class Watched(Store):
        def commit(self, *args, **options):
            super().commit(*args, **options)
            with Store(self.path, read_only=True) as reader:
                (position,) = reader.sources()
                rows.append((position.more["n_rows"], sum(reader.load(key).n_rows for key in reader.keys())))

    monkeypatch.setattr(commits, "DELIVER_SECONDS", 0.0)
    monkeypatch.setattr(running, "IDLE_SECONDS", 1e9)
    rows, broker = [], Broker([0, 3, 0, 5] * 50)
    with Halting(farm, REGRESSION.columns, "time", key="turbine") as feed:
        # No model stays in memory.
        with Fleet(template(REGRESSION), store=Watched(tmp_path / "farm.db"), memory_budget=0) as fleet:
            run = Run(feed, fleet, REGRESSION, bad_rows="skip", commit_every=80)
            run.lines = PredictionLines(REGRESSION.targets, False, "jsonl", "turbine")
            run.predictions = Channel("outputs", broker)
            run.run()
    assert broker.got and {n for n, _ in rows} == {0, 80, 160, 240, 320, 400}
    assert all(n == learnt for n, learnt in rows)


def test_rows_are_acknowledged_without_a_store_too(farm):
    class Counting(Feed):
        acknowledged = 0

        def acknowledge(self):
            self.acknowledged += 1

    feed = Counting(farm, REGRESSION.columns, "time", key="turbine")
    take(feed, REGRESSION, commit_every=100)
    # At the end once more.
    assert feed.acknowledged == 5
    feed = Counting(farm, REGRESSION.columns, "time", key="turbine")
    take(feed, REGRESSION, commit_seconds=0.0)
    assert feed.acknowledged > 5


def test_the_last_line_of_a_pipe_needs_no_newline(tmp_path):
    class Pipe(io.BytesIO):
        def seekable(self):
            return False

    text = "\n".join([HEADER, *lines(30)])
    with Feed(Pipe(text.encode()), REGRESSION.columns, "time", key="turbine") as feed:
        run = take(feed, REGRESSION, tmp_path / "farm.db")
    assert run.cut_off is None
    assert sum(parts.n_rows for parts in kept(tmp_path / "farm.db")[0].values()) == 30


def test_a_file_is_not_continued_after_a_run_that_wrote_elsewhere(farm, tmp_path):
    store, out = tmp_path / "farm.db", tmp_path / "out.jsonl"
    take(farm, REGRESSION, store, out=out, limit=100)
    take(farm, REGRESSION, store, limit=100)
    with Feed(farm, REGRESSION.columns, "time", key="turbine") as feed, Store(store) as opened:
        with Fleet(template(REGRESSION), store=opened) as fleet:
            assert Run(feed, fleet, REGRESSION).written("outputs") is None


@pytest.mark.parametrize("last", ["\n", ""], ids=["whole", "without newline"])
def test_a_run_that_is_to_stop_does_not_finish_a_large_block(farm, tmp_path, monkeypatch, last):
    from momostream.runs import run as running

    farm.write_text(farm.read_text().rstrip() + last)
    monkeypatch.setattr(running, "STOP_ROWS", 100)
    store = tmp_path / "farm.db"
    with Feed(farm, REGRESSION.columns, "time", key="turbine") as feed:
        with Fleet(template(REGRESSION), store=Store(store)) as fleet:
            run = Run(feed, fleet, REGRESSION, bad_rows="skip")
            run.predictions = Channel("outputs")
            run.run(on_row=lambda run: run.stop())
    assert run.is_abandoned and run.n_rows < 400 and kept(store)[0] == {}
    farm.write_text(farm.read_text().rstrip() + "\n")
    take(farm, REGRESSION, store)
    assert kept(store)[0] == take(farm, REGRESSION).states


def test_a_row_that_is_cut_off_is_not_committed_by_an_error_after_it(tmp_path):
    folder, store = tmp_path / "days", tmp_path / "farm.db"
    folder.mkdir()
    text = list(lines(40))
    (folder / "a.csv").write_text("\n".join([HEADER, *text[:20]]))

    class Growing(Folder):
        def events(self):
            yield from super().events()
            # A file that comes when the last row of the one before has been taken.
            raise FeedError("b.csv: cannot be opened")

    with pytest.raises(FeedError, match="b.csv"):
        take(Growing(folder, REGRESSION.columns, "time", key="turbine"), REGRESSION, store)
    assert sum(parts.n_rows for parts in kept(store)[0].values()) == 19
    (folder / "a.csv").write_text("\n".join([HEADER, *text]) + "\n")
    take(Folder(folder, REGRESSION.columns, "time", key="turbine"), REGRESSION, store)
    assert sum(parts.n_rows for parts in kept(store)[0].values()) == 40


def test_a_file_of_a_folder_that_cannot_be_read_is_named_and_costs_nothing(tmp_path):
    folder, store = tmp_path / "days", tmp_path / "farm.db"
    folder.mkdir()
    (folder / "a.csv").write_text("\n".join([HEADER, *lines(30)]) + "\n")
    (folder / "b.csv").write_text("time,power\n2024-05-01,1\n")
    for _ in range(2):
        with pytest.raises(ValueError, match=r"b.csv: column 'turbine': does not exist"):
            take(Folder(folder, REGRESSION.columns, "time", key="turbine"), REGRESSION, store)
        assert sum(parts.n_rows for parts in kept(store)[0].values()) == 30


def test_a_key_that_is_half_a_character_is_rejected(tmp_path):
    path = tmp_path / "farm.jsonl"
    path.write_text('{"time": "2024-03-01", "turbine": "T\\ud800", "wind": 1, "power": 2, "load": 3}\n')
    run = take(path, REGRESSION, tmp_path / "farm.db")
    assert (run.n_rows, run.n_bad) == (0, 1)


def test_a_full_disk_is_not_a_bad_row(farm, tmp_path):
    store = tmp_path / "farm.db"
    take(farm, REGRESSION, store, limit=100)
    with Feed(farm, REGRESSION.columns, "time", key="turbine") as feed:
        with Fleet(template(REGRESSION), store=Store(store), memory_budget=0) as fleet:
            fleet.store._db.execute("PRAGMA max_page_count=30")
            run = Run(feed, fleet, REGRESSION, bad_rows="skip")
            with pytest.raises(StoreError, match="the disk is full; the store is as it was at the last commit"):
                run.run()
            assert run.n_bad == 0
    take(farm, REGRESSION, store)
    assert kept(store)[0] == take(farm, REGRESSION).states


def test_blocks_of_a_file_leave_time_for_commits(farm, tmp_path, monkeypatch):
    """A file is read within moments: a block must end before all of its rows are in hand."""
    committed = []
    monkeypatch.setattr("momostream.runs.run.FIRST_BLOCK", 50)
    monkeypatch.setattr(
        Run,
        "commit",
        lambda run, before=None, commit=Run.commit: (committed.append(run.n_rows), commit(run, before))[1],
    )
    whole = take(farm, FORECAST)
    take(farm, FORECAST, tmp_path / "farm.db", commit_seconds=1e-6)
    # One before the first row, one after the first block, then after each row or two.
    assert len(committed) > 50 and committed[1] <= 50
    assert kept(tmp_path / "farm.db")[1] == whole.text


class SlowFleet:
    """A fleet whose commits in parts take five seconds."""

    store, commit_seconds = None, 5.0

    def __len__(self):
        return 1

    def continue_commit(self, seconds):
        return True


def test_after_a_commit_that_took_long_the_next_one_comes_later():
    feed = SimpleNamespace(name="farm.csv", acknowledge=lambda: None)
    commits = Commits(feed, SlowFleet(), Channels(FORECAST, 0.999), None, 10.0)
    commits.count()
    commits._committed_at -= 11.0
    assert commits.is_due(10.0)
    commits.advance(0.1)
    commits._committed_at -= 19.0
    assert not commits.is_due(10.0)
    commits._committed_at -= 2.0
    assert commits.is_due(10.0)
