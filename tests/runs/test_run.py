"""Runs over a feed: what is predicted from what, and that a killed run resumes exactly."""

from __future__ import annotations

import csv
import io
from contextlib import ExitStack

import numpy as np
import pytest

from momostream import MOMoGPForecaster, MOMoGPRegressor
from momostream.feeds import Feed, FeedError, Folder
from momostream.feeds.outputs import PredictionLines, Sink
from momostream.runs.fleet import Fleet
from momostream.runs.plan import Plan, make_model
from momostream.runs.run import Channel, Run
from momostream.storage.blocks import Parts
from momostream.storage.store import Store

N_ROWS = 120
REGRESSION = Plan(("power",), ("wind", "pitch"), "time")
FORECAST = Plan(("power", "wind"), (), "time", horizon=3)
QUICK = {"experts": ("last value", "own lags")}


def lines(n=N_ROWS, seed=0):
    rng = np.random.default_rng(seed)
    wind = 8.0
    yield "time,wind,pitch,power"
    for t in range(n):
        wind += 0.2 * (8.0 - wind) + 0.5 * rng.normal()
        pitch = "" if t % 11 == 5 else f"{rng.uniform(0, 4):.2f}"
        time = f"2024-03-{1 + t // 144:02d} {t // 6 % 24:02d}:{10 * (t % 6):02d}"
        yield f"{time},{wind:.3f},{pitch},{wind**3 + rng.normal():.2f}"


@pytest.fixture(autouse=True)
def opened():
    """Feeds and sinks that a test has opened, closed at its end."""
    with ExitStack() as stack:
        OPENED.append(stack)
        yield
        OPENED.pop()


OPENED: list[ExitStack] = []


def feed_of(*args, **options):
    return OPENED[-1].enter_context(Feed(*args, **options))


@pytest.fixture
def feed_path(tmp_path):
    path = tmp_path / "turbine.csv"
    path.write_text("\n".join(lines()) + "\n")
    return path


def written(path):
    return list(csv.DictReader(io.StringIO(path.read_text())))


def model_for(plan):
    return make_model(plan, QUICK if plan.horizon else None)


def start(path, plan, out, store=None, settings=None, fleet=None, **options):
    """A run that starts, or resumes from the store; ``out`` is a file, a stream, or None for the store."""
    if fleet is None:
        model = make_model(plan, (QUICK if plan.horizon else {}) | (settings or {}))
        fleet = Fleet(model, store=None if store is None else OPENED[-1].enter_context(Store(store)))
        OPENED[-1].callback(fleet.close)
    feed = path if isinstance(path, Folder) else feed_of(path, plan.columns, plan.time, key=plan.key)
    run = Run(feed, fleet, plan, **options)
    run.lines = PredictionLines(plan.targets, plan.horizon is not None, "jsonl" if out is None else "csv", plan.key)
    sink = None if out is None else Sink(out, run.lines.header, run.written("outputs"))
    if sink is not None:
        OPENED[-1].enter_context(sink)
    run.predictions = Channel("outputs", sink)
    return run


def leave(run):
    """Let go of everything at once, as a killed process does."""
    if run.predictions.sink is not None:
        run.predictions.sink.flush()
    run.fleet.close()


def position(store):
    with Store(store, read_only=True) as reader:
        (found,) = reader.sources()
        return found


def states(store):
    with Store(store, read_only=True) as reader:
        return {key: Parts.of(reader.load(key)) for key in reader.keys()}


def test_a_regression_is_predict_then_learn(feed_path, tmp_path):
    run = start(feed_path, REGRESSION, tmp_path / "out.csv")
    run.run()
    model, expected = MOMoGPRegressor(clock="time", seed=0), []
    for row in feed_of(feed_path, time="time"):
        x = {name: row.values[name] for name in ("wind", "pitch") if name in row.values} | {"time": row.time}
        distribution = model.predict_one(x, with_dist=True)
        if distribution:
            expected.append((row.number, distribution.mean["power"], *distribution.interval(0.9)["power"]))
        model.learn_one(x, {"power": row.values["power"]})
    found = written(tmp_path / "out.csv")
    assert [int(line["row"]) for line in found] == [number for number, *_ in expected] == list(range(2, N_ROWS + 1))
    numbers = [[float(line[name]) for name in ("power", "power lower", "power upper")] for line in found]
    np.testing.assert_allclose(numbers, [numbers for _, *numbers in expected], rtol=1e-8)
    assert run.track.n_scored == N_ROWS - 1 and run.n_rows == N_ROWS


def test_forecasts_follow_each_row(feed_path, tmp_path):
    run = start(feed_path, FORECAST, tmp_path / "out.csv")
    run.run()
    model = MOMoGPForecaster(horizon=3, time="time", seed=0, **QUICK)
    for row in feed_of(feed_path, ["power", "wind"], "time"):
        model.learn_one(row.values, {"time": row.time})
    last = [line for line in written(tmp_path / "out.csv") if line["row"] == str(N_ROWS)]
    distribution = model.forecast(3, with_dist=True)
    assert [line["time"] for line in last] == [time.isoformat() for time in distribution.index]
    np.testing.assert_allclose([float(line["wind"]) for line in last], distribution.mean["wind"], rtol=1e-8)
    assert run.track.n_scored == N_ROWS - 3


@pytest.mark.parametrize("plan", [REGRESSION, FORECAST], ids=["regression", "forecast"])
@pytest.mark.parametrize("killed_at", [1, 40, 77, 119])
def test_a_killed_run_resumes_exactly(feed_path, tmp_path, plan, killed_at):
    whole = start(feed_path, plan, tmp_path / "whole.csv", tmp_path / "whole.db", commit_every=25)
    whole.run()

    class KilledError(Exception):
        pass

    def kill(run):
        if run.n_rows == killed_at:
            raise KilledError

    store, out = tmp_path / "store.db", tmp_path / "out.csv"
    run = start(feed_path, plan, out, store, commit_every=25)
    with pytest.raises(KilledError):
        run.run(on_row=kill)
    leave(run)
    again = start(feed_path, plan, out, store, commit_every=25)
    assert again.n_rows == killed_at - killed_at % 25
    again.run()
    assert out.read_bytes() == (tmp_path / "whole.csv").read_bytes()
    assert states(store) == states(tmp_path / "whole.db")
    assert again.track.summary.equals(whole.track.summary)


def test_an_ended_run_resumes_when_the_file_has_grown(feed_path, tmp_path):
    text = feed_path.read_text().splitlines(keepends=True)
    whole = start(feed_path, FORECAST, tmp_path / "whole.csv")
    whole.run()
    feed_path.write_text("".join(text[:61]))
    run = start(feed_path, FORECAST, tmp_path / "out.csv", tmp_path / "store.db")
    run.run()
    leave(run)
    feed_path.write_text("".join(text))
    start(feed_path, FORECAST, tmp_path / "out.csv", tmp_path / "store.db").run()
    assert (tmp_path / "out.csv").read_bytes() == (tmp_path / "whole.csv").read_bytes()


def test_a_pipe_resumes_with_the_rows_that_come(tmp_path):
    class Pipe(io.BytesIO):
        def seekable(self):
            return False

    text = [line + "\n" for line in lines()]
    parts = ["".join(text[:61]), text[0] + "".join(text[61:])]
    store, out = tmp_path / "store.db", io.BytesIO()
    run = start(Pipe(parts[0].encode()), FORECAST, io.BytesIO(), store)
    run.run()
    leave(run)
    run = start(Pipe(parts[1].encode()), FORECAST, out, store)
    run.run()
    assert run.n_rows == N_ROWS and run.last.number == N_ROWS
    assert [int(line["row"]) for line in csv.DictReader(io.StringIO(out.getvalue().decode()))][::3] == list(
        range(61, 121)
    )


def test_every_and_limit(feed_path, tmp_path):
    plan = Plan(("power",), (), "time", horizon=2, every=10)
    run = start(feed_path, plan, tmp_path / "out.csv")
    run.run(limit=35)
    assert run.n_rows == 35
    rows = [int(line["row"]) for line in written(tmp_path / "out.csv")]
    # The newest row has a forecast, whatever the rows between forecasts.
    assert rows == [1, 1, 11, 11, 21, 21, 31, 31, 35, 35]


def test_learning_only_predicts_nothing(feed_path, tmp_path):
    run = start(feed_path, FORECAST, tmp_path / "out.csv", learn_only=True)
    run.run()
    assert run.model.n_rows == N_ROWS and run.predicted is None and run.track.n_scored == 0
    assert len((tmp_path / "out.csv").read_text().splitlines()) == 1


@pytest.mark.parametrize("plan", [REGRESSION, FORECAST], ids=["regression", "forecast"])
def test_a_row_that_the_model_rejects_is_a_bad_row(feed_path, tmp_path, plan):
    text = feed_path.read_text().splitlines()
    text[50] = text[50].rsplit(",", 1)[0] + ",1e300"
    feed_path.write_text("\n".join(text))
    with pytest.raises(FeedError, match=r"turbine.csv: row 50: .*power.*1e\+?300"):
        start(feed_path, plan, tmp_path / "out.csv").run()
    run = start(feed_path, plan, tmp_path / "out.csv", bad_rows="skip")
    run.run()
    assert run.n_rows == N_ROWS - 1 and run.n_bad == 1
    assert "50" not in {line["row"] for line in written(tmp_path / "out.csv")}


def test_stopping_between_rows_and_while_waiting(feed_path, tmp_path):
    run = start(feed_path, FORECAST, tmp_path / "out.csv", tmp_path / "store.db")
    run.run(on_row=lambda run: run.stop() if run.n_rows == 17 else None)
    assert run.is_stopped and run.n_rows == 17 and position(tmp_path / "store.db").more["n_rows"] == 17

    class Waiting(Feed):
        def events(self):
            for row in super().events():
                yield row
                if row.number == 20:
                    run.stop()
                    yield None

    feed = OPENED[-1].enter_context(Waiting(feed_path, FORECAST.columns, "time"))
    run = Run(feed, Fleet(model_for(FORECAST)), FORECAST)
    run.run()
    assert run.n_rows == 20


def test_a_series_that_came_late_and_has_bounds(tmp_path):
    """Forecasts that wait in the checkpoint know fewer series than the model."""
    text = list(lines())
    text[1:51] = [line.rsplit(",", 1)[0] + "," for line in text[1:51]]
    path = tmp_path / "late.csv"
    path.write_text("\n".join(text) + "\n")
    outputs = []
    for name, cuts in (("whole", []), ("parts", [52])):
        out, store, settings = tmp_path / f"{name}.csv", tmp_path / f"{name}.db", {"bounds": {"wind": (-5.0, 40.0)}}
        run = start(path, FORECAST, out, store, settings)
        for cut in cuts:
            run.run(limit=cut)
            leave(run)
            run = start(path, FORECAST, out, store, settings)
        run.run()
        outputs.append((out.read_bytes(), run.track.summary))
    assert outputs[0][0] == outputs[1][0] and outputs[0][1].equals(outputs[1][1])


def test_an_error_after_learning_is_not_a_bad_row(feed_path, tmp_path, monkeypatch):
    run = start(feed_path, FORECAST, tmp_path / "out.csv", bad_rows="skip")
    monkeypatch.setattr(run.predictions.sink, "write", lambda *args: (_ for _ in ()).throw(ValueError("broken")))
    with pytest.raises(ValueError, match="broken"):
        run.run()
    assert run.n_bad == 0


def test_a_last_line_without_newline_is_read_again(feed_path, tmp_path):
    whole = start(feed_path, FORECAST, tmp_path / "whole.csv")
    whole.run()
    text = feed_path.read_text()
    feed_path.write_text(text[:-3])  # inside the last number
    out, store = tmp_path / "out.csv", tmp_path / "store.db"
    run = start(feed_path, FORECAST, out, store)
    run.run()
    assert run.cut_off.number == N_ROWS and run.n_rows == N_ROWS
    assert written(out)[-1]["row"] == str(N_ROWS)
    leave(run)
    feed_path.write_text(text)
    start(feed_path, FORECAST, out, store).run()
    assert out.read_bytes() == (tmp_path / "whole.csv").read_bytes()


def test_another_feed_is_not_continued(feed_path, tmp_path):
    out, store = tmp_path / "out.csv", tmp_path / "store.db"
    run = start(feed_path, FORECAST, out, store)
    run.run(limit=60)
    leave(run)
    feed_path.write_text("\n".join(lines(seed=1)) + "\n")
    with pytest.raises(ValueError, match=r"not the feed that was read before|does not end at byte"):
        start(feed_path, FORECAST, out, store)


def test_what_came_through_a_pipe_is_not_looked_for_in_a_file(feed_path, tmp_path):
    class Pipe(io.BytesIO):
        def seekable(self):
            return False

    store, pipe = tmp_path / "store.db", Pipe(feed_path.read_bytes())
    pipe.name = "turbine.csv"
    run = start(pipe, FORECAST, io.BytesIO(), store)
    run.run(limit=50)
    leave(run)
    with pytest.raises(ValueError, match="from a pipe"):
        start(feed_path, FORECAST, tmp_path / "out.csv", store)


def test_bad_rows_are_counted_once(feed_path, tmp_path):
    text = feed_path.read_text().splitlines()
    for i in (20, 51, 52, 100):
        text[i] = text[i].replace(",", ",x", 1)
    feed_path.write_text("\n".join(text) + "\n")
    out, store = tmp_path / "out.csv", tmp_path / "store.db"
    for limit in (49, 30, 30):
        run = start(feed_path, FORECAST, out, store, bad_rows="skip")
        run.run(limit)
        leave(run)
    assert run.n_bad == 4 and run.n_rows == 109
    assert position(store).n_bad == 4
    with Store(store, read_only=True) as reader:
        letters = [letter for _, letter in reader.dead()]
    assert [letter.row for letter in letters] == [text[i] for i in (20, 51, 52, 100)]
    assert letters[0].source == "turbine.csv" and "column 'wind': 'x" in letters[0].reason
    assert all(feed_path.read_bytes()[: letter.offset].endswith(letter.row.encode() + b"\n") for letter in letters)


def test_a_bad_row_does_not_cost_the_rows_before_it(feed_path, tmp_path):
    text = feed_path.read_text().splitlines()
    text[61] = "x" + text[61]
    feed_path.write_text("\n".join(text) + "\n")
    store = tmp_path / "store.db"
    for _ in range(2):
        run = start(feed_path, FORECAST, tmp_path / "out.csv", store)
        with pytest.raises(FeedError, match="row 61"):
            run.run()
        leave(run)
        assert position(store).number == position(store).more["n_rows"] == 60


def test_checkpoints_by_time_and_files_that_others_look_at(feed_path, tmp_path, monkeypatch):
    from momostream.runs import commits

    monkeypatch.setattr(commits, "FLUSH_SECONDS", 0.0)
    seen, store = [], tmp_path / "store.db"
    run = start(feed_path, FORECAST, tmp_path / "out.csv", store, commit_seconds=0.0)
    run.run(10, lambda run: seen.append(run.fleet.store.source("turbine.csv")))
    assert [found.number for found in seen] == list(range(10))
    sizes = []
    start(feed_path, FORECAST, tmp_path / "b.csv").run(
        10, lambda run: sizes.append((tmp_path / "b.csv").stat().st_size)
    )
    assert sizes[1] < sizes[-1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"targets": ("power", "power"), "horizon": 2}, "'power' is named twice as target"),
        ({"targets": ()}, "no target"),
        ({"targets": ("power",)}, "no input"),
        ({"targets": ("power",), "inputs": ("power",)}, "'power' is named as target and as input"),
        ({"targets": ("power",), "inputs": ("wind",), "time": "wind"}, "'wind' is the time"),
        ({"targets": ("power",), "horizon": 0}, "horizon=0"),
        ({"targets": ("power",), "horizon": 2, "every": 0}, "every=0"),
        ({"targets": ("power",), "horizon": 2, "level": 1.0}, "level=1.0"),
    ],
)
def test_plans_that_make_no_sense(options, message):
    with pytest.raises(ValueError, match=message):
        Plan(**options)


def test_history_of_the_newest_rows(feed_path, tmp_path):
    run = start(feed_path, FORECAST, tmp_path / "out.csv")
    run.run()
    assert list(run.history.columns) == ["power", "wind"] and len(run.history) == N_ROWS
    assert str(run.history.index[-1]) == "2024-03-01 19:50:00"
