"""The fleet: models that leave and come back as if they had not, commits that survive kills, warm starts."""

from __future__ import annotations

import os
import signal
import time
from random import Random
from statistics import median

import pytest

from momostream import MOMoGPForecaster, MOMoGPRegressor
from momostream.runs import fleet
from momostream.runs.fleet import Fleet
from momostream.storage.blocks import Packed, Parts
from momostream.storage.store import DeadLetter, Output, Position, Store, StoreError
from tests.storage.stores import contents

SMALL = {"experts": ("matern32",), "max_points": 32, "tuning_evaluations": 4, "seed": 0}
SETTINGS = {
    "small": SMALL,
    "default": {"seed": 1},
    "window": {**SMALL, "experts": ("matern32", "lags"), "window": 40},
    "mixture": {**SMALL, "n_components": 2, "n_groups": 2, "mixture_depth": None},
}


def rows(n, n_keys=4, seed=0):
    """Rows of keys in no regular order; later keys join later."""
    random = Random(seed)
    for i in range(n):
        key = f"T{random.randrange(1 + min(n_keys - 1, i // 30)):02d}"
        wind = random.gauss(8.0, 2.0)
        yield key, {"wind": wind, "pitch": random.random()}, {"power": wind**2, "load": wind + random.random()}


def states(members):
    """All models to the bit."""
    return {key: Parts.of(members.model(key)) for key in members}


def run(members, feed, commit_every=None):
    predictions = []
    for n, (key, x, y) in enumerate(feed, 1):
        predictions.append(members.predict_one(key, x))
        members.learn_one(key, x, y)
        if commit_every and n % commit_every == 0:
            members.commit(Position("farm", n, n))
    return predictions


@pytest.fixture
def path(tmp_path):
    return tmp_path / "farm.store"


@pytest.fixture
def quick_warm_start(monkeypatch):
    monkeypatch.setattr(fleet, "DONOR_ROWS", 20)


# ---------------------------------------------------------------------- leaving and coming back


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
@pytest.mark.parametrize("where", ["memory", "store"])
def test_a_fleet_without_memory_equals_one_with_plenty(path, settings, where, quick_warm_start):
    feed = list(rows(400))
    plenty = Fleet(MOMoGPRegressor(**settings), warm_start=True)
    expected = run(plenty, feed)
    with Fleet(
        MOMoGPRegressor(**settings), store=Store(path) if where == "store" else None, memory_budget=0, warm_start=True
    ) as tiny:
        assert run(tiny, feed, 37 if where == "store" else None) == expected
        assert tiny.n_live == 1
        assert states(tiny) == states(plenty)


def test_windows_along_the_clock_leave_and_come_back():
    settings = {**SMALL, "experts": ("clock matern32",), "window": 40}
    feed = list(rows(400))
    assert run(Fleet(MOMoGPRegressor(**settings), memory_budget=0), feed) == run(
        Fleet(MOMoGPRegressor(**settings)), feed
    )


def test_forecasters_leave_and_come_back(path):
    template = MOMoGPForecaster(horizon=3, seed=0)
    feed = list(rows(150, 3))
    plenty = Fleet(template)
    with Fleet(template, store=Store(path), memory_budget=0) as tiny:
        for n, (key, x, y) in enumerate(feed):
            for members in (plenty, tiny):
                members.learn_one(key, x, y)
            if n % 20 == 0:
                tiny.commit()
                assert tiny.forecast(key, 3) == plenty.forecast(key, 3)
        assert states(tiny) == states(plenty)


def test_a_fleet_that_is_opened_again_resumes(path, quick_warm_start):
    feed = list(rows(400))
    whole = Fleet(MOMoGPRegressor(**SMALL), warm_start=True)
    expected = run(whole, feed)
    found = []
    for part in (feed[:90], feed[90:91], feed[91:300], feed[300:]):
        with Fleet(MOMoGPRegressor(**SMALL), store=Store(path), warm_start=True) as members:
            found += run(members, part)
            members.commit()
    assert found == expected
    with Fleet(MOMoGPRegressor(**SMALL), store=Store(path), warm_start=True) as members:
        assert members.n_live == 0
        assert members.keys() == whole.keys()
        assert states(members) == states(whole)


# ---------------------------------------------------------------------- exactly once


def test_models_that_leave_between_commits_are_not_in_the_store_yet(path):
    feed = list(rows(200))
    with Fleet(MOMoGPRegressor(**SMALL), store=Store(path), memory_budget=0) as members:
        run(members, feed[:150])
        members.commit(Position("farm", 150, 150))
        committed = {key: members.store.load(key).n_rows for key in members}
        run(members, feed[150:])
        with Store(path, read_only=True) as reader:
            assert {key: reader.load(key).n_rows for key in reader.keys()} == committed
            assert reader.source("farm").offset == sum(committed.values()) == 150
            members.commit(Position("farm", 200, 200))
            assert sum(reader.load(key).n_rows for key in reader.keys()) == reader.source("farm").offset == 200
    # Closed without a commit: what came after it is gone as a whole.
    with Fleet(MOMoGPRegressor(**SMALL), store=Store(path)) as members:
        run(members, feed[:30])
    with Store(path) as reopened:
        assert sum(reopened.load(key).n_rows for key in reopened.keys()) == 200


def test_models_that_leave_between_commits_take_no_memory(path):
    with Fleet(MOMoGPRegressor(**SMALL), store=Store(path), memory_budget=400_000) as members:
        for n in range(60):
            members.learn_one(n, {"wind": float(n)}, {"power": 1.0})
        assert members.packed_bytes == 0 and members.n_live < 10
        assert members.model(3).n_rows == 1
        members.commit()
        assert len(members) == len(members.store) == 60


def test_without_a_store_nothing_can_be_committed():
    members = Fleet(MOMoGPRegressor(**SMALL), memory_budget=0)
    run(members, rows(100))
    assert members.packed_bytes > 0
    with pytest.raises(ValueError, match="no store"):
        members.commit()


def test_only_models_in_use_are_written(path):
    with Fleet(MOMoGPRegressor(**SMALL), store=Store(path)) as members:
        run(members, rows(200))
        members.commit()
        members.commit()
        assert members.store.bytes_written == 0
        members.learn_one("T00", {"wind": 1.0}, {"power": 1.0})
        members.commit()
        assert 0 < members.store.bytes_written < 60_000


def test_a_commit_that_fails_can_be_repeated(path):
    feed = list(rows(300))
    plenty = Fleet(MOMoGPRegressor(**SMALL))
    run(plenty, feed)
    with Fleet(MOMoGPRegressor(**SMALL), store=Store(path)) as members:
        members.store._db.execute("PRAGMA max_page_count=1")
        run(members, feed[:250])
        with pytest.raises(StoreError, match="full"):
            members.commit(Position("farm", 250, 250))
        run(members, feed[250:])
        members.store._db.execute("PRAGMA max_page_count=10000")
        members.commit(Position("farm", 300, 300))
    with Fleet(MOMoGPRegressor(**SMALL), store=Store(path)) as members:
        assert members.store.source("farm").offset == 300
        assert states(members) == states(plenty)


def test_models_that_left_before_a_failed_commit_are_as_they_were(path):
    feed = list(rows(300))
    with Fleet(MOMoGPRegressor(**SMALL), store=Store(path), memory_budget=0) as members:
        run(members, feed[:100])
        members.commit(Position("farm", 100, 100))
        run(members, feed[100:250])
        members.store._db.execute("PRAGMA max_page_count=1")
        # More than the pages that the store has already.
        members.about["note"] = Random(0).randbytes(50_000).hex()
        with pytest.raises(StoreError, match="full"):
            members.commit(Position("farm", 250, 250))
        # Models that had left are as they were at row 100: nothing may be learnt on top of that.
        with pytest.raises(StoreError, match="open the store again"):
            run(members, feed[250:])
    with Fleet(MOMoGPRegressor(**SMALL), store=Store(path), memory_budget=0) as members:
        position = members.store.source("farm")
        run(members, feed[position.offset :])
        members.commit(Position("farm", 300, 300))
        plenty = Fleet(MOMoGPRegressor(**SMALL))
        run(plenty, feed)
        assert states(members) == states(plenty)


def test_a_model_can_be_added_once(path):
    model = MOMoGPRegressor(**SMALL)
    model.learn_one({"wind": 1.0}, {"power": 2.0})
    with Fleet(MOMoGPRegressor(**SMALL), store=Store(path)) as members:
        assert members.peek("T01") is None
        members.add("T01", model)
        assert members.peek("T01") is model and members.keys() == ["T01"]
        with pytest.raises(ValueError, match="already"):
            members.add("T01", model)
        members.about["plan"] = {"targets": ("power",)}
        members.commit()
    with Fleet(MOMoGPRegressor(**SMALL), store=Store(path)) as members:
        assert members.model("T01").n_rows == 1 and members.about == {"plan": {"targets": ("power",)}}


N_ROWS, COMMIT_EVERY = 900, 20


def take_all(path, tell=lambda: None):
    """Learn a counted source from where the store stands, with bad rows in it, to its end; ``tell`` of each row."""
    feed = list(rows(N_ROWS, 5))
    # Small: models leave and come back all the time.
    with Fleet(
        MOMoGPRegressor(**SMALL), store=Store(path, timeout=30.0), memory_budget=600_000, warm_start=True
    ) as members:
        position = members.store.source("farm") or Position("farm", 0, 0)
        outputs, dead, n_bad = [], [], position.n_bad
        for n in range(position.offset, N_ROWS):
            key, x, y = feed[n]
            if n % 37 == 5:
                y = {"power": "broken"}
            outputs.append(Output(key, n, repr(members.predict_one(key, x))))
            try:
                members.learn_one(key, x, y)
            except TypeError as error:
                n_bad += 1
                dead.append(DeadLetter("farm", n, key, str(error), repr(y)))
            tell()
            if (n + 1) % COMMIT_EVERY == 0 or n + 1 == N_ROWS:
                members.commit(Position("farm", n + 1, n + 1, n_bad), outputs, dead)
                outputs, dead = [], []


def in_child(path):
    """Begin `take_all` in a child that has all modules loaded; returns its process id and a pipe: a byte per row."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            take_all(path, lambda: os.write(writing, b"."))
            status = 0
        finally:
            os._exit(status)
    os.close(writing)
    return child, reading


def everything(path):
    with Store(path) as opened:
        models = {key: Parts.of(opened.load(key)) for key in opened.keys()}
        return models, opened.source("farm"), list(opened.outputs()), list(opened.dead()), repr(opened.notes)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.system
def test_kills_at_random_moments_leave_no_trace(tmp_path, quick_warm_start):
    take_all(tmp_path / "whole")
    expected = everything(tmp_path / "whole")
    assert sum(parts.n_rows for parts in expected[0].values()) + len(expected[3]) == N_ROWS
    random, offsets, path = Random(0), [], tmp_path / "killed"
    for n_kills in range(20):
        child, pipe = in_child(path)
        # Some while the store is opened, or made; others after a number of rows, and in commits that are under way.
        if n_kills % 4:
            for _ in range(random.randrange(60)):
                os.read(pipe, 1)
        time.sleep(random.uniform(0.0, 0.005))
        os.kill(child, signal.SIGKILL)
        os.close(pipe)
        assert os.waitpid(child, 0)[1] == signal.SIGKILL, "it ended before it could be killed"
        if path.exists():
            with Store(path) as opened:
                position = opened.source("farm") or Position("farm", 0, 0)
                assert sum(opened.load(key).n_rows for key in opened.keys()) == position.offset - position.n_bad
                offsets.append(position.offset)
    assert offsets == sorted(offsets)
    assert len(set(offsets)) > 5
    take_all(path)
    assert everything(path) == expected


# ---------------------------------------------------------------------- memory


def test_loaded_models_stay_within_the_budget():
    members = Fleet(MOMoGPRegressor(seed=0), memory_budget=2_000_000)
    most = 0
    for key, x, y in rows(900, 12):
        members.learn_one(key, x, y)
        most = max(most, sum(live.model.nbytes for live in members._live.values()) + members.packed_bytes)
    assert 1 < members.n_live < 12
    assert most < 1.1 * 2_000_000
    assert members.nbytes + members.packed_bytes <= 2_000_000
    assert members.nbytes == sum(live.nbytes for live in members._live.values())


def test_the_least_recently_used_leaves():
    members = Fleet(MOMoGPRegressor(**SMALL), memory_budget=1 << 30)
    for key in "abc":
        members.learn_one(key, {"wind": 1.0}, {"power": 1.0})
    members.predict_one("a", {"wind": 1.0})
    members.memory_budget = members.nbytes + 50_000
    members.learn_one("d", {"wind": 1.0}, {"power": 1.0})
    assert list(members._live) == ["c", "a", "d"]


def test_a_row_does_not_look_at_other_models(monkeypatch):
    members = Fleet(MOMoGPRegressor(**SMALL))
    run(members, rows(200, 8))
    looked = []
    size = MOMoGPRegressor.nbytes
    monkeypatch.setattr(MOMoGPRegressor, "nbytes", property(lambda self: looked.append(self) or size.fget(self)))
    for _ in range(100):
        members.learn_one("T03", {"wind": 1.0}, {"power": 1.0})
    assert set(map(id, looked)) == {id(members.model("T03"))}
    assert len(looked) < 10


def test_a_compressed_model_is_several_times_smaller():
    members = Fleet(MOMoGPRegressor(seed=0))
    run(members, rows(600, 1))
    assert Packed(members.model("T00")).nbytes < 0.2 * members.model("T00").nbytes


def test_bad_rows_do_not_fill_the_memory(path):
    with Fleet(MOMoGPRegressor(**SMALL), store=Store(path), memory_budget=0) as members:
        run(members, rows(200, 6))
        members.commit()
        for key in members:
            with pytest.raises(TypeError):
                members.learn_one(key, {"wind": 1.0}, {"power": "broken"})
        assert members.n_live == 1


def test_a_model_that_cannot_be_saved_is_not_lost():
    members = Fleet(MOMoGPRegressor(**SMALL), memory_budget=0)
    members.learn_one("a", {"wind": 1.0}, {"power": 1.0})
    members._live["a"].model.seed = frozenset("x")
    with pytest.raises(TypeError, match="cannot save"):
        members.learn_one("b", {"wind": 1.0}, {"power": 1.0})
    assert members._live["a"].model.n_rows == 1
    assert members.packed_bytes == 0


# ---------------------------------------------------------------------- calls


def test_an_unknown_key_gives_nothing_and_makes_nothing():
    members = Fleet(MOMoGPRegressor(**SMALL))
    assert members.predict_one("T99", {"wind": 1.0}) == {}
    assert members.predict_one("T99", {"wind": 1.0}, with_dist=True) == {}
    assert Fleet(MOMoGPForecaster(horizon=2)).forecast("T99", 2) == []
    with pytest.raises(KeyError):
        members.model("T99")
    assert (len(members), members.n_live, "T99" in members, members.nbytes) == (0, 0, False, 0)


def test_a_bad_row_leaves_everything_as_it_was():
    members = Fleet(MOMoGPRegressor(**SMALL))
    run(members, rows(100))
    before = states(members)
    for key in ("T00", "T99"):
        with pytest.raises(TypeError, match="'power' is a str"):
            members.learn_one(key, {"wind": 1.0}, {"power": "broken"})
        with pytest.raises(ValueError, match="infinite"):
            members.learn_one(key, {"wind": float("inf")}, {"power": 1.0})
    assert states(members) == before
    assert "T99" not in members


@pytest.mark.parametrize("key", [3.5, 1.0, True, None, ("a", 2.5)])
def test_other_keys_are_rejected(key):
    members = Fleet(MOMoGPRegressor(**SMALL))
    members.learn_one(1, {"wind": 1.0}, {"power": 1.0})
    x, y = {"wind": 1.0}, {"power": 1.0}
    for call in (lambda: members.learn_one(key, x, y), lambda: members.predict_one(key, x), lambda: members.model(key)):
        with pytest.raises(TypeError, match="invalid key"):
            call()
    assert members.keys() == [1]


def test_keys_are_sorted_whatever_their_types():
    members = Fleet(MOMoGPRegressor(**SMALL))
    for key in ("b", 2, ("a", 1), "a", 10):
        members.learn_one(key, {"wind": 1.0}, {"power": 1.0})
    assert list(members) == members.keys() == ["a", "b", ("a", 1), 10, 2]


def test_a_model_without_rows_is_a_template_and_stays_one():
    template = MOMoGPRegressor(**SMALL)
    members = Fleet(template)
    run(members, rows(50))
    assert template.n_rows == 0
    with pytest.raises(ValueError, match="without any"):
        Fleet(members.model("T00"))


def test_a_function_makes_the_model_of_a_key():
    members = Fleet(lambda key: MOMoGPRegressor(**SMALL) if key == "row" else MOMoGPForecaster(horizon=2, seed=0))
    for t in range(20):
        members.learn_one("row", {"wind": float(t)}, {"power": 2.0 * t})
        members.learn_one("series", None, {"power": 2.0 * t})
    assert members.predict_one("row", {"wind": 3.0}, with_dist=True).mean.keys() == {"power"}
    assert len(members.forecast("series", 2)) == 2
    assert len(members.forecast("series", 2, with_dist=True).to_dicts()) == 2
    with pytest.raises(TypeError, match="use forecast"):
        members.predict_one("series", {})
    with pytest.raises(TypeError, match="use predict_one"):
        members.forecast("row", 1)


@pytest.mark.parametrize("budget", [-1, 1.5, None, True])
def test_budgets_that_make_no_sense_are_rejected(budget):
    with pytest.raises(ValueError, match="memory_budget"):
        Fleet(MOMoGPRegressor(**SMALL), memory_budget=budget)


def test_a_closed_fleet_lets_go_of_its_store(path):
    with Fleet(MOMoGPRegressor(**SMALL), store=Store(path)) as members:
        members.learn_one(1, {"wind": 1.0}, {"power": 1.0})
        members.commit()
    members.close()
    assert members.n_live == 0
    with Store(path) as opened:
        assert opened.keys() == [1]


# ---------------------------------------------------------------------- warm starts


def first_row(members, key, x):
    members.learn_one(key, x, {"power": 1.0})
    (expert,) = members.model(key).hyperparameters
    return expert


def test_a_new_model_starts_from_the_medians_of_others(quick_warm_start):
    members, alone = Fleet(MOMoGPRegressor(**SMALL), warm_start=True), Fleet(MOMoGPRegressor(**SMALL))
    for n in range(5):
        run(members, [(n, x, y) for _, x, y in rows(20, 1, seed=n)])
    run(members, [(9, x, y) for _, x, y in rows(19, 1, seed=9)])
    donors = [members.model(n).hyperparameters for n in range(5)]
    new = first_row(members, "new", {"wind": 1.0, "other": 2.0})
    lengthscale = median(median(expert["lengthscales"]["wind"] for expert in experts) for experts in donors)
    assert new["lengthscales"]["wind"] == pytest.approx(lengthscale, rel=1e-12)
    # Beside what keeps factors stable.
    noise = median(median(expert["noise"] for expert in experts) for experts in donors)
    assert new["noise"] == pytest.approx(noise, abs=2e-8)
    plain = first_row(alone, "new", {"wind": 1.0, "other": 2.0})
    assert new["lengthscales"]["other"] == plain["lengthscales"]["other"]
    assert new["lengthscales"]["wind"] != plain["lengthscales"]["wind"]


def test_warm_starts_use_the_newest_models(quick_warm_start, monkeypatch):
    monkeypatch.setattr(fleet, "N_DONORS", 2)
    members = Fleet(MOMoGPRegressor(**SMALL), warm_start=True)
    for key, n in (("a", 20), ("b", 20), ("c", 20), ("a", 19), ("b", 20)):
        run(members, [(key, x, y) for _, x, y in rows(n, 1)])
    # The others passed on theirs at 20 rows, this one again at 40.
    assert list(members._donors) == ["c", "b"]


def test_a_row_without_targets_does_not_count_as_the_first(quick_warm_start):
    members = Fleet(MOMoGPRegressor(**SMALL), warm_start=True)
    run(members, rows(20, 1))
    members.learn_one("new", {"wind": 1.0}, {"power": None})
    assert members.model("new").n_rows == 0
    _, noise = members._donors["T00"]
    assert first_row(members, "new", {"wind": 1.0})["noise"] == pytest.approx(noise, abs=2e-8)


def test_models_without_hyperparameters_pass_on_none(quick_warm_start):
    members = Fleet(MOMoGPRegressor(experts=("lags",), seed=0), warm_start=True)
    run(members, rows(60, 2))
    assert not members._donors
    series = Fleet(MOMoGPForecaster(horizon=1, seed=0), warm_start=True)
    for key, x, y in rows(60, 2):
        series.learn_one(key, x, y)
    assert not series._donors


@pytest.mark.parametrize(("n_rows", "passes_on"), [(1, False), (199, False), (200, True), (400, True), (600, False)])
def test_a_model_passes_on_its_hyperparameters_as_it_doubles(n_rows, passes_on):
    assert fleet._is_donor(n_rows) is passes_on


def test_warm_starts_survive_huge_inputs(quick_warm_start):
    members = Fleet(MOMoGPRegressor(**SMALL), warm_start=True)
    run(members, [("a", {"wind": 1e28 * t, "pitch": 1e-40 * t}, {"power": float(t)}) for t in range(40)])
    run(members, [("b", {"wind": 1e28 * t, "pitch": 1e-40 * t}, {"power": float(t)}) for t in range(40)])
    assert members.model("b").n_rows == 40


def test_the_older_name_of_warm_starts():
    assert Fleet(MOMoGPRegressor(**SMALL), kin=True).warm_start and not Fleet(MOMoGPRegressor(**SMALL)).kin


def test_a_commit_by_parts_is_the_state_at_its_begin(tmp_path):
    """Rows that are learnt while models are written are part of the next commit only."""
    template = MOMoGPRegressor(experts=("matern32",), max_points=32, tuning_evaluations=4, seed=0)
    rows = [({"wind": float(n % 7)}, {"power": float(n % 5)}) for n in range(60)]
    keys = [f"T{n}" for n in range(6)]
    with Fleet(template, store=Store(tmp_path / "whole.db")) as whole:
        for x, y in rows[:20]:
            for key in keys:
                whole.learn_one(key, x, y)
        whole.commit(Position("farm", 20, 20), [Output("T0", 20, "a")])
    with Fleet(template, store=Store(tmp_path / "parts.db")) as fleet:
        for x, y in rows[:20]:
            for key in keys:
                fleet.learn_one(key, x, y)
        fleet.begin_commit(Position("farm", 20, 20), [Output("T0", 20, "a")])
        assert not fleet.continue_commit(0.0)
        # Two of them before they are written, and a new one.
        for key in ("T5", "T3", "T9"):
            fleet.learn_one(key, *rows[20])
        assert not fleet.continue_commit(0.0)
        with Store(tmp_path / "parts.db", read_only=True) as store:
            assert not store.keys() and store.source("farm") is None
        assert fleet.continue_commit(60.0) and not fleet.store.has_uncommitted
        assert contents(tmp_path / "parts.db") == contents(tmp_path / "whole.db")
        fleet.commit(Position("farm", 21, 21))
        with Store(tmp_path / "parts.db", read_only=True) as store:
            assert store.rows() == {**dict.fromkeys(keys, 20), "T5": 21, "T3": 21, "T9": 1}


def test_a_commit_by_parts_with_little_memory(tmp_path):
    """A model that leaves memory meanwhile goes into the commit that it belongs to."""
    template = MOMoGPRegressor(experts=("matern32",), max_points=32, tuning_evaluations=4, seed=0)
    keys = [f"T{n}" for n in range(8)]
    with Fleet(template, store=Store(tmp_path / "parts.db"), memory_budget=0) as fleet:
        for n in range(30):
            for key in keys:
                fleet.learn_one(key, {"wind": float(n % 7)}, {"power": float(n % 5)})
            fleet.begin_commit(Position("farm", n, n))
            fleet.continue_commit(0.0)
            fleet.learn_one(keys[n % 8], {"wind": 1.0}, {"power": 2.0})
            fleet.learn_one(keys[(n + 3) % 8], {"wind": 1.0}, {"power": 2.0})
        fleet.commit(Position("farm", 30, 30))
    with Fleet(template) as whole:
        for n in range(30):
            for key in (*keys, keys[n % 8], keys[(n + 3) % 8]):
                row = ({"wind": float(n % 7)}, {"power": float(n % 5)})
                whole.learn_one(key, *row)
        expected = {key: whole.model(key).n_rows for key in keys}
    with Store(tmp_path / "parts.db", read_only=True) as store:
        assert store.rows() == expected
        assert store.source("farm").number == 30
