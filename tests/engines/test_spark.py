from __future__ import annotations

import json
import os
import shutil
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from threadpoolctl import threadpool_limits

from benchmarks.tools.fleet_spark import LOCAL, PLAN, kill_spark, start_session
from momostream.datasets.wind import WindFarm
from momostream.distributions.predicted import PredictedValues
from momostream.feeds.formats import Row
from momostream.runs.fleet import Fleet
from momostream.runs.plan import Plan, make_model, take_rows
from momostream.storage.blocks import Parts

pytest.importorskip("pyspark", reason="needs PySpark: the extra spark")
from pyspark.sql import types as T  # noqa: E402 - without PySpark there is nothing to import

from momostream.engines import spark as cluster  # noqa: E402 - as above

if shutil.which("java") is None:
    pytest.skip("needs Java 17 on the path", allow_module_level=True)

# PySpark warns of pandas 3, and leaves sockets to Python's garbage collection.
pytestmark = [
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

ROOT = Path(__file__).resolve().parents[2]
SIMPLE = Plan(("power",), ("wind",), "at", key="id")
START = datetime(2024, 3, 10, 1, 30)


# ---------------------------------------------------------------------- one key, without a cluster


class State:
    """What Spark keeps of a key."""

    def __init__(self):
        self.blocks, self.written, self.removed = {}, [], []

    def getMapState(self, *_):  # noqa: N802 - Spark's name
        return self

    def iterator(self):
        return iter([((place,), (block,)) for place, block in self.blocks.items()])

    def updateValue(self, place, block):  # noqa: N802 - Spark's name
        self.blocks[place[0]] = block[0]
        self.written.append(place[0])

    def removeKey(self, place):  # noqa: N802 - Spark's name
        del self.blocks[place[0]]
        self.removed.append(place[0])


def given(rows):
    """Rows as a worker gets them."""
    micros = [np.iinfo(np.int64).min if at is None else np.datetime64(at, "us").astype(np.int64) for at, *_ in rows]
    return pd.DataFrame({"key": "A", "time": micros, "values": [np.array([power, wind]) for _, wind, power in rows]})


def take(state, rows, plan=SIMPLE, key="A"):
    """Lines of the result for one batch of one key."""
    columns = ["key", "time", "reason", "row", *(["step", "step time"] if plan.horizon else []), "values"]
    processor = cluster._ModelProcessor(plan, None, 1024, True, False, columns)
    processor.init(state)
    found = list(processor.handleInputRows((key,), iter([given(rows)]), None))
    return found[0] if found else pd.DataFrame(columns=columns)


def simple_rows(n, start=0):
    rng = np.random.default_rng(start)
    winds = rng.uniform(4, 12, n)
    return [(START + timedelta(minutes=10 * (start + i)), wind, wind**3 + rng.normal()) for i, wind in enumerate(winds)]


def test_same_as_the_runner_over_many_batches():
    rows, state = simple_rows(90), State()
    lines = pd.concat([take(state, rows[at : at + 15]) for at in range(0, 90, 15)])
    fleet = Fleet(make_model(SIMPLE), warm_start=False)
    steps = take_rows(fleet, SIMPLE, "A", [Row(n, n, at, {"wind": w, "power": p}) for n, (at, w, p) in enumerate(rows)])
    predicted = PredictedValues.many(
        [step.prediction for step in steps if step.prediction], SIMPLE.targets, SIMPLE.level
    )
    expected = np.array([[o.mean[0, 0], o.lower[0, 0], o.upper[0, 0]] for o in predicted])
    assert np.array_equal(np.stack(lines["values"].to_list()), expected)
    assert Parts.of(cluster._model(state.blocks)).chunks == Parts.of(fleet.model("A")).chunks


def test_order_within_a_batch_does_not_matter():
    rows = simple_rows(20)
    # Rows of one time as well: which of them is learnt must not depend on which came first.
    rows += [(rows[5][0], 9.0, 700.0), (rows[5][0], 9.0, 600.0)]
    results, states = [], []
    for order in (range(22), reversed(range(22)), np.random.default_rng(0).permutation(22)):
        states.append(State())
        results.append(take(states[-1], [rows[i] for i in order]))
    for lines, state in zip(results[1:], states[1:], strict=True):
        pd.testing.assert_frame_equal(lines, results[0])
        assert state.blocks == states[0].blocks
    assert results[0]["reason"].notna().sum() == 2


def test_a_repeated_batch_gives_the_same():
    state, rows = State(), simple_rows(30)
    take(state, rows[:20])
    committed = dict(state.blocks)
    first, after = take(state, rows[20:]), dict(state.blocks)
    state.blocks = committed
    pd.testing.assert_frame_equal(take(state, rows[20:]), first)
    assert state.blocks == after


def test_only_what_has_changed_is_written():
    state, rows = State(), simple_rows(601)
    take(state, rows[:600])
    before, state.written = dict(state.blocks), []
    take(state, rows[600:])
    changed = {place for place, block in state.blocks.items() if before.get(place) != block}
    assert set(state.written) == changed
    assert sum(len(state.blocks[place]) for place in changed) < sum(map(len, state.blocks.values())) / 2
    assert {*before} - {*state.blocks} == {*state.removed}


def test_late_rows_write_nothing():
    state, rows = State(), simple_rows(20)
    take(state, rows)
    state.written = []
    lines = take(state, rows[3:5])
    assert lines["reason"].tolist() == [f"the time {at} is not after that of the row before" for at, *_ in rows[3:5]]
    assert json.loads(lines["row"][0]) == {
        "key": "A",
        "time": rows[3][0].isoformat(),
        "wind": rows[3][1],
        "power": rows[3][2],
    }
    assert state.written == []


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ((None, 5.0, 125.0), "the time is missing"),
        ((np.datetime64("20000-01-01"), 5.0, 125.0), "the time is out of range"),
        ((START, 5.0, np.inf), "the value of 'power' is infinite"),
        ((START, 1e60, 5.0), "the value of 'wind' is 1e+60"),
    ],
)
def test_poisoned_rows_are_rejected(row, reason):
    state = State()
    lines = take(state, [row])
    assert len(lines) == 1 and lines["reason"][0].startswith(reason)
    assert state.blocks == {}
    take(state, simple_rows(5, start=1))
    assert cluster._model(state.blocks).n_rows == 5


def test_rows_without_key_are_rejected():
    state = State()
    lines = take(state, simple_rows(2), key="")
    assert lines["reason"].tolist() == ["the key is missing"] * 2
    assert "key" not in json.loads(lines["row"][0])
    assert state.written == []


def test_missing_readings_are_not_a_reason_to_reject():
    at = START + timedelta(hours=9)
    state, rows = State(), [*simple_rows(20), (at, np.nan, 5.0), (at + timedelta(hours=1), 5.0, np.nan)]
    lines = take(state, rows)
    assert lines["reason"].isna().all()
    assert len(lines) == 21


def test_forecasts_have_steps_and_their_times():
    plan = Plan(("power",), ("wind",), "at", horizon=3, key="id")
    rows, state = simple_rows(40), State()
    lines = pd.concat([take(state, rows[at : at + 10], plan) for at in range(0, 40, 10)])
    model = make_model(plan)
    expected = []
    for at, wind, power in rows:
        model.learn_one({"power": power}, {"wind": wind, "at": at})
        predicted = PredictedValues.of(model.forecast(3, with_dist=True), plan.targets, plan.level)
        expected.append(np.stack([predicted.mean, predicted.lower, predicted.upper], axis=2).reshape(3, 3))
    assert lines["step"].tolist() == [1, 2, 3] * 40
    assert np.array_equal(np.stack(lines["values"].to_list()), np.concatenate(expected))
    made, steps = (lines[name].to_numpy()[-3:].view("datetime64[us]").tolist() for name in ("time", "step time"))
    assert made == [rows[-1][0]] * 3
    assert steps == [rows[-1][0] + timedelta(minutes=10 * n) for n in (1, 2, 3)]


def test_keys_and_times_may_be_numbers():
    state = State()
    columns = ["key", "time", "offset", "reason", "row", "values"]
    processor = cluster._ModelProcessor(SIMPLE, None, 4096, False, True, columns)
    processor.init(state)
    times = [3.0, 1.0, 2.0, np.nan, np.inf]
    values = [np.array([time, 1.0]) for time in (3.0, 1.0, 2.0, 4.0, 5.0)]
    batch = pd.DataFrame({"key": "7", "time": times, "values": values, "offset": [5, 4, 3, 2, 1]})
    (lines,) = processor.handleInputRows(("7",), iter([batch]), None)
    assert lines["time"].tolist()[:2] == [2.0, 3.0]
    assert lines["offset"].tolist() == [3, 5, 1, 2]
    assert lines["reason"].tolist()[2:] == ["the time is infinite", "the time is missing"]
    assert [json.loads(row)["key"] for row in lines["row"][2:]] == [7, 7]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"wind": None}, "no column 'wind': use one of 'id', 'at', 'power'"),
        ({"wind": T.StringType()}, "column 'wind' holds string: cast it to numbers"),
        ({"id": T.DoubleType()}, "column 'id' holds double: cast it to strings or integers"),
        ({"at": T.StringType()}, "column 'at' holds string: cast it to timestamps or numbers"),
    ],
)
def test_columns_that_cannot_be_used(changed, message):
    types = {"id": T.StringType(), "at": T.TimestampType(), "wind": T.DoubleType(), "power": T.DoubleType()} | changed
    with pytest.raises(ValueError, match=message):
        cluster._check_columns({name: kind for name, kind in types.items() if kind is not None}, SIMPLE, None)


def test_names_of_the_result_differ():
    types = {"id": T.StringType(), "row": T.TimestampType(), "wind": T.DoubleType(), "power": T.DoubleType()}
    with pytest.raises(ValueError, match="would be called 'row'"):
        cluster._check_columns(types, Plan(("power",), ("wind",), "row", key="id"), None)


# ---------------------------------------------------------------------- a session


@pytest.fixture(scope="module")
def spark():
    with pytest.MonkeyPatch.context() as patch:
        # Workers find the same package. The others are set by `start_session`, and put back afterwards.
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])))
        for name in ("PYSPARK_PYTHON", "SPARK_HOME"):
            patch.setenv(name, "")
        session = start_session(LOCAL, brief=True)
        # Far from UTC, and with hours that there are twice or never.
        session.conf.set("spark.sql.session.timeZone", "America/New_York")
        yield session
        session.stop()


def farm_rows():
    """Two batches of three turbines, and what is wrong with the second."""
    rows = [{"turbine": key, **x, **y} for key, x, y in WindFarm(3, seed=0).take(150)]
    first, second = rows[:75], rows[75:]
    poison = {**second[1], "time": second[1]["time"] + timedelta(milliseconds=1), PLAN.targets[0]: 1e60}
    nobody, blank = {**second[2], "turbine": None}, {**second[2], "turbine": " "}
    timeless = {**second[3], "time": None}
    gap = {**second[-1], "time": second[-1]["time"] + timedelta(seconds=1), PLAN.inputs[0]: None}
    return first, [*second, first[7], second[8], poison, nobody, blank, timeless, gap]


def write_rows(folder, n, rows):
    folder.mkdir(exist_ok=True)
    frame = pd.DataFrame(rows).sample(frac=1.0, random_state=0)
    frame["time"] = pd.to_datetime(frame["time"]).dt.tz_localize("UTC")
    frame.assign(place=range(len(frame))).to_parquet(folder / f"{n}.parquet", coerce_timestamps="us")


def run(spark, folder, plan, schema):
    rows = spark.readStream.schema(schema).parquet(str(folder / "rows"))
    made = cluster.forecast_stream(rows, plan, offset="place")
    query = (
        made.writeStream.trigger(availableNow=True)
        .option("checkpointLocation", str(folder / "state"))
        .start(str(folder / "made"), format="parquet")
    )
    query.awaitTermination()
    return query.recentProgress


def expected_lines(plan, batches):
    """The result of a run over these rows, sorted by time within a batch: lines of forecasts, models, rejected rows."""
    fleet, lines, rejected = Fleet(make_model(plan), warm_start=False), {}, 0
    for batch in batches:
        usable = [row for row in batch if (row[plan.key] or " ").strip() and row[plan.time] is not None]
        rejected += len(batch) - len(usable)
        for row in sorted(usable, key=lambda row: row[plan.time]):
            values = {name: row[name] for name in plan.columns if row[name] is not None}
            (step,) = take_rows(fleet, plan, row[plan.key], [Row(0, 0, row[plan.time], values, row[plan.key])])
            rejected += step.reason is not None
            if step.prediction is None:
                continue
            predicted = PredictedValues.of(step.prediction, plan.targets, plan.level)
            cells = np.stack([predicted.mean, predicted.lower, predicted.upper], axis=2).reshape(
                len(predicted.mean), -1
            )
            for n, line in enumerate(cells.tolist(), 1):
                lines[row[plan.key], row[plan.time], n] = line
    return lines, {key: Parts.of(fleet.model(key)).chunks for key in fleet}, rejected


def found_lines(spark, folder, plan):
    made = spark.read.parquet(str(folder / "made"))
    micros = cluster.F.unix_micros(plan.time).alias("micros")
    lines = {}
    for line in cluster.forecasts(made).select("*", micros).collect():
        cells = line.asDict()
        time = datetime(1970, 1, 1) + timedelta(microseconds=cells["micros"])
        values = [cells[name + side] for name in plan.targets for side in ("", " lower", " upper")]
        lines[cells[plan.key], time, cells.get("step", 1)] = values
    states = {key: Parts.of(model).chunks for key, model in cluster.models(spark, folder / "state").items()}
    return lines, states, cluster.dead_letters(made)


def test_frames_that_cannot_be_used(spark):
    still = spark.range(3)
    with pytest.raises(ValueError, match="the frame is not a stream"):
        cluster.forecast_stream(still, SIMPLE)
    with pytest.raises(ValueError, match="set both in the plan"):
        cluster.forecast_stream(still, Plan(("power",), ("wind",), "at"))


def test_times_go_there_and_back(spark):
    words = ["2024-03-10 02:30:00.123456", "1969-12-31 23:59:59.999999", "2024-11-03 01:30:00", None]
    frame = spark.createDataFrame([(word,) for word in words], "word string")
    for kind in (T.TimestampNTZType(), T.TimestampType()):
        time = cluster.F.col("word").cast(kind)
        there = cluster._time_given(time, kind)
        rows = frame.select(
            there.alias("there"), cluster._time_found(there, kind).eqNullSafe(time).alias("same")
        ).collect()
        assert all(row.same for row in rows)
        if kind == T.TimestampNTZType():
            exact = [np.datetime64(word, "us").astype(np.int64) for word in words if word]
            assert [row.there for row in rows] == [*exact, np.iinfo(np.int64).min]


def test_stream_is_the_runner(spark, tmp_path):
    schema = "turbine string, time timestamp, place long, " + ", ".join(f"{name} double" for name in PLAN.columns)
    batches = farm_rows()
    progress = []
    for n, rows in enumerate(batches):
        write_rows(tmp_path / "rows", n, rows)
        # The second query resumes from the checkpoint of the first.
        progress += run(spark, tmp_path, PLAN, schema)
    # As in a worker: more threads of BLAS add up in another order.
    with threadpool_limits(1):
        lines, states, rejected = expected_lines(PLAN, batches)
    found, found_states, dead = found_lines(spark, tmp_path, PLAN)
    assert found == lines
    assert found_states == states
    reasons = [row["reason"] for row in dead.collect()]
    assert reasons.count("the key is missing") == 2
    assert reasons.count("the time is missing") == 1
    assert sum(reason.endswith("is not after that of the row before") for reason in reasons) == 2
    assert sum(reason.startswith(f"the value of {PLAN.targets[0]!r} is 1e+60") for reason in reasons) == 1
    assert dead.count() == rejected == 6
    assert dead.columns == ["turbine", "time", "place", "reason", "row"]
    assert None not in {row["place"] for row in dead.collect()}
    counts = [step.observedMetrics[cluster.METRICS] for step in progress]
    assert [(count.predicted, count.refused) for count in counts] == [(72, 0), (76, 6)]
    # Of the second batch.
    assert progress[-1].stateOperators[0].numRowsUpdated < 3 * len(states["T01"]) + 100


def test_killed_drivers_leave_no_trace(spark):
    found = kill_spark(1, seed=0, n_keys=3, rows_per_batch=5, n_batches=4, spark=spark)
    assert found["kills"] == 1
    # In the middle: some batches were done, and some were not.
    assert 1 <= found["batches done at each kill"][0] < 4
    assert {name: same for name, same in found.items() if name.startswith("same ") and not same} == {}
    assert found["predicted"] == 3 * 5 * 4 - 3
