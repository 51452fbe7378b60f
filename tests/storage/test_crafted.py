"""Files with a valid checksum and contents that do not fit: refused in words, before compiled code sees them."""

from __future__ import annotations

import zlib
from datetime import datetime, timedelta
from random import Random

import numpy as np
import pytest

from momostream import MOMoGPForecaster, MOMoGPMonitor, MOMoGPRegressor, load
from momostream.sklearn import MOMoGPRegressor as TableRegressor
from momostream.storage import container
from momostream.storage.blocks import Parts
from momostream.storage.container import FileFormatError
from momostream.storage.tables import table_to_tree

LINEAR = ("last value", "season", "own lags", "wide lags", "iterated lags")


@pytest.fixture(scope="module")
def tree():
    """A regressor with gates, sums, bundles, jobs and factors that rows were dropped from, as plain data."""
    model = MOMoGPRegressor(
        max_points=12,
        n_components=2,
        n_groups=2,
        window=60,
        tuning_points=12,
        first_tuning=8,
        tuning_interval=64,
        seed=0,
    )
    random = Random(0)
    for t in range(90):
        x = random.gauss(0.0, 1.0)
        model.learn_one({"wind": x, "t": t % 7}, {"power": x * x, "load": x, "level": random.random()})
    return container.dumps(*_parts(model))


def _parts(model):
    from momostream.storage.models import to_tree

    return to_tree(model)


def at(tree, *path):
    for key in path:
        tree = tree[key]
    return tree


def node(tree, kind):
    nodes = [node for one in tree["state"]["model"]["trees"] for node in one["nodes"]]
    return next(node for node in nodes if node["kind"] == kind)


def set_(where, key, value):
    where[key] = value


CRAFTED = {
    "leaf / numbers": lambda tree: set_(node(tree, "leaf")["leaf"]["numbers"], 0, 1 << 40),
    "leaf / targets": lambda tree: set_(node(tree, "leaf")["leaf"]["targets"], 0, -7),
    "leaf / theta": lambda tree: set_(node(tree, "leaf")["leaf"], "theta", np.zeros(1)),
    "leaf / units": lambda tree: set_(node(tree, "leaf")["leaf"], "units", np.zeros((2, 90))),
    "leaf / centre": lambda tree: set_(node(tree, "leaf")["leaf"], "centre", np.zeros(0)),
    "leaf / blocks": lambda tree: set_(node(tree, "leaf")["leaf"], "blocks", [(0, 9), (3, 12)]),
    "gate / column": lambda tree: set_(node(tree, "gate"), "column", 10**6),
    "gate / cuts": lambda tree: set_(node(tree, "gate"), "cuts", np.zeros(9)),
    "bundle / places": lambda tree: set_(node(tree, "bundle")["places"][0], 0, 99),
    "sum / log_weights": lambda tree: set_(node(tree, "sum"), "log_weights", np.zeros((1, 1))),
    "children": lambda tree: set_(node(tree, "sum")["children"], 0, 0),
    "tree / built": lambda tree: set_(at(tree, "state", "model", "trees", 0), "built", [9999]),
    "rows / X": lambda tree: set_(at(tree, "state", "model", "rows"), "X", np.zeros((60, 3), np.float32)),
    "rows / Y": lambda tree: set_(at(tree, "state", "model", "rows"), "Y", np.zeros((2, 3))),
    "rows / first": lambda tree: set_(at(tree, "state", "model", "rows"), "first", -5),
    "stack / mixing": lambda tree: set_(at(tree, "state", "model", "stack", "mixing"), 2, 1e9),
    "stack / R": lambda tree: set_(at(tree, "state", "model", "stack"), "R", np.zeros((1, 1))),
    "stack / moments is inf": lambda tree: set_(at(tree, "state", "model", "stack", "moments"), (1, 1, 2), np.inf),
    "stack / moments or pairs is negative": lambda tree: set_(
        at(tree, "state", "model", "stack", "pairs"), (0, 0, 0), -1.0
    ),
    "lags / clock": lambda tree: set_(at(tree, "state", "model", "lags", "clock"), 0, 1e9),
    "lags / A": lambda tree: set_(at(tree, "state", "model", "lags"), "A", np.zeros((2, 2))),
    "lags / n_rows": lambda tree: set_(at(tree, "state", "model", "lags"), "n_rows", None),
    "screening / inputs / states": lambda tree: set_(
        at(tree, "state", "screening", "inputs"), "states", np.zeros((2, 1))
    ),
    "screening / shown": lambda tree: set_(at(tree, "state", "screening"), "shown", np.zeros((9, 9))),
    "screening / shown is inf": lambda tree: set_(at(tree, "state", "screening", "shown"), (0, 3), np.inf),
    "screening / inputs / counts": lambda tree: set_(
        at(tree, "state"), "inputs", [["str", f"x{n}"] for n in range(50)]
    ),
    "tree / due": lambda tree: set_(at(tree, "state", "model", "trees", 0), "due", [["cut", 0]]),
}


@pytest.mark.parametrize("part", CRAFTED)
def test_a_crafted_file_is_refused_and_the_part_named(part, tree, tmp_path):
    kind, crafted = container.loads(tree)
    CRAFTED[part](crafted)
    path = tmp_path / "crafted.momo"
    container.write(path, kind, crafted)
    with pytest.raises(FileFormatError, match=part):
        load(path)


def test_what_was_not_crafted_loads(tree, tmp_path):
    path = tmp_path / "model.momo"
    container.write(path, *container.loads(tree))
    assert load(path).n_rows == 90


def test_crafted_blocks_of_a_store_are_refused(tree):
    from momostream.storage.models import from_tree

    kind, crafted = container.loads(tree)
    model = from_tree(kind, crafted)
    model._model.trees[0].nodes()[-1].numbers_[:] = 1 << 40
    blocks = Parts.of(model).changes({}, 4096).write
    with pytest.raises(ValueError, match="leaf / numbers"):
        Parts.join(blocks)


@pytest.fixture(scope="module")
def forecaster():
    model = MOMoGPForecaster(horizon=3, experts=(*LINEAR, "matern32"), conformal=True, max_points=12, time="t", seed=0)
    start = datetime(2024, 1, 1)
    for t in range(90):
        model.learn_one({"power": float(t % 5), "load": t % 7}, {"u": t % 3, "t": start + timedelta(hours=t)})
    return container.dumps(*_parts(model))


@pytest.fixture(scope="module")
def monitor():
    model, random = MOMoGPMonitor("1 per 50 rows", warm_up=30, window=64), Random(0)
    for t in range(120):
        # A fault that lasts, so that an event is open.
        model.learn_one({"a": random.gauss(50.0 if t > 116 else 0.0, 1.0), "b": random.gauss(0.0, 1.0)})
    assert model.event is not None
    return container.dumps(*_parts(model))


def part_(name, key, value):
    return lambda tree: set_(tree["state"]["model"][name], key, value)


CRAFTED_FORECASTER = {
    "past / series": part_("past", "series", np.zeros((90, 4, 9))),
    "past / observed": part_("past", "observed", np.zeros((3, 2))),
    "past / first": part_("past", "first", 1 << 40),
    "past / n_rows": part_("past", "n_rows", -1),
    "blend / weights": part_("blend", "weights", np.zeros((3, 2, 99))),
    "middle / moments": part_("middle", "moments", np.zeros((3, 2, 1, 1))),
    "outlook / mixing": lambda tree: set_(tree["state"]["model"]["outlook"]["mixing"], (0, 2), np.nan),
    "levels / sample": part_("levels", "sample", np.zeros((99, 2))),
    "levels / knots": part_("levels", "knots", np.zeros((2, 1))),
    "ties / steps": part_("ties", "steps", np.zeros((2, 2), np.float32)),
    "conformal / n_rows": part_("conformal", "n_rows", 0.5),
    "ring / kept": part_("ring", "kept", np.full(3, -9)),
    "ring / points": part_("ring", "points", np.zeros((3, 1))),
    "own / seasons": part_("own", "seasons", np.array([0])),
    "own / next": part_("own", "next", 1 << 40),
    "own / W": part_("own", "W", np.zeros((2, 3, 2, 1))),
    "wide / P": part_("wide", "P", np.zeros((2, 1, 1))),
    "iterated / centre": part_("iterated", "centre", np.zeros(9)),
    "ahead / terms": lambda tree: set_(tree["state"]["model"]["ahead"], 0, np.zeros((9, 9))),
    "ahead / alike": lambda tree: set_(tree["state"]["model"]["ahead"], 1, np.full(4, -5)),
    "model / seasons": lambda tree: set_(tree["state"]["model"], "seasons", [0]),
    "model / n_series": lambda tree: set_(tree["state"]["model"], "n_series", 10**9),
    "clock / kind": lambda tree: set_(tree["state"]["clock"], "kind", "moon"),
    "state / step": lambda tree: set_(tree["state"], "step", -1.0),
    "rows / Y": lambda tree: set_(tree["state"]["model"]["plain"]["rows"], "Y", np.zeros((0, 10**9))),
    "ring / ": lambda tree: set_(tree["parameters"], "horizon", 10**7),
    "lags=1048578 is not accepted": lambda tree: set_(tree["parameters"], "lags", 1048578),
    "seasons=2147483648 is not accepted": lambda tree: set_(tree["parameters"], "seasons", 1 << 31),
    "time=.* is not accepted: use the name of a field": lambda tree: set_(tree["parameters"], "time", [None]),
    "screening / n_clipped": lambda tree: set_(tree["state"]["screening"]["n_clipped"], 1, np.inf),
}
CRAFTED_MONITOR = {
    "monitor / n_columns": part_("model", "n_columns", 10**9),
    "monitor / past": part_("model", "past", np.zeros((2, 9))),
    "monitor / means": part_("model", "means", np.zeros((1, 1))),
    "monitor / rows / known": lambda tree: set_(tree["state"]["model"]["model"]["rows"], 2, np.zeros((64, 2))),
    "monitor / normal / weights": lambda tree: set_(
        tree["state"]["model"]["model"]["normal"], "weights", np.zeros((1, 2))
    ),
    "monitor / normal / reach": lambda tree: set_(tree["state"]["model"]["model"]["normal"], "reach", [0.5]),
    "watch / events / columns": part_("open", "columns", np.zeros((4, 9))),
    "watch / held": lambda tree: set_(tree["state"]["model"]["held"], 0, np.zeros((1, 2, 9))),
    "suspects / n_rows": lambda tree: set_(tree["state"]["model"]["suspects"], 2, -1),
    "watch / open: there is no event": lambda tree: set_(tree["state"]["model"]["model"], "normal", None),
    "false_alarms=": lambda tree: set_(tree["parameters"], "false_alarms", [0]),
    "time=.* is not accepted": lambda tree: set_(tree["parameters"], "time", [[0]]),
    "watch / n_seen": lambda tree: set_(tree["state"]["model"], "n_seen", "many"),
}


@pytest.mark.parametrize("part", CRAFTED_FORECASTER)
def test_crafted_parts_of_a_forecaster(part, forecaster, tmp_path):
    refuse(part, forecaster, CRAFTED_FORECASTER[part], tmp_path)


@pytest.mark.parametrize("part", CRAFTED_MONITOR)
def test_crafted_parts_of_a_monitor(part, monitor, tmp_path):
    refuse(part, monitor, CRAFTED_MONITOR[part], tmp_path)


def refuse(part, written, craft, folder):
    kind, crafted = container.loads(written)
    container.write(folder / "good.momo", kind, crafted)
    assert load(folder / "good.momo").n_rows > 0
    craft(crafted)
    container.write(folder / "crafted.momo", kind, crafted)
    with pytest.raises(FileFormatError, match=part):
        load(folder / "crafted.momo")


def find(tree, name):
    return next(attributes for kind, attributes in tree["objects"] if kind == name)


CRAFTED_TABLE = {
    "region / n_rows": lambda tree: set_(find(tree, "Region"), "n_rows", 10**6),
    "region / theta": lambda tree: set_(find(tree, "Region"), "theta", ["array", np.zeros(1)]),
    "region / _X": lambda tree: set_(find(tree, "Region"), "_X", ["array", np.zeros((9, 1), np.float32)]),
    "region / centre": lambda tree: set_(find(tree, "Region"), "centre", ["array", np.zeros(9)]),
    "covariance / name": lambda tree: set_(find(tree, "Covariance"), "name", "moon"),
    "node / children": lambda tree: set_(
        next(a for kind, a in tree["objects"] if kind == "Node" and a["kind"] != 3), "children", ["tuple", [77, -4]]
    ),
    "node / region": lambda tree: set_(find(tree, "Node"), "region", -7),
    "circuit / root": lambda tree: set_(find(tree, "Circuit"), "root", 10**6),
    "linear / gram": lambda tree: set_(find(tree, "LinearRegression"), "gram", ["array", np.zeros(2)]),
    "warp / knots": lambda tree: set_(find(tree, "Warp"), "knots", ["tuple", []]),
    "model / log_weights": lambda tree: set_(find(tree, "Model"), "log_weights", ["array", np.zeros(9)]),
    "copula / residual": lambda tree: set_(find(tree, "Copula"), "residual", ["array", np.eye(9)]),
    "more than one parent|recursion": lambda tree: set_(
        next(a for kind, a in tree["objects"] if kind == "Node" and a["kind"] == 1), "children", ["tuple", [0, 0]]
    ),
    "fitted / n_features_in_": lambda tree: set_(tree["fitted"], "n_features_in_", -1),
    "expert / _standard": lambda tree: set_(
        find(tree, "CircuitExpert"), "_standard", ["tuple", [["array", np.zeros(2)]]]
    ),
    "is of an unknown class": lambda tree: set_(tree["objects"], 0, ["Popen", {}]),
}


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(90, 2))
    model = TableRegressor(max_points=20, random_state=0).fit(X, np.column_stack([np.sin(X[:, 0]), X[:, 1]]))
    return container.dumps("table", table_to_tree(model))


@pytest.mark.parametrize("part", CRAFTED_TABLE)
def test_crafted_parts_of_a_table(part, table, tmp_path):
    kind, crafted = container.loads(table)
    CRAFTED_TABLE[part](crafted)
    container.write(tmp_path / "crafted.momo", kind, crafted)
    with pytest.raises(FileFormatError, match=part):
        load(tmp_path / "crafted.momo")


def test_few_bytes_do_not_become_many():
    data = container.dumps("note", {"rows": np.zeros(1 << 24)}, compress=True)
    with pytest.raises(FileFormatError, match="much larger than the file"):
        container.loads(data)


def test_a_header_that_unpacks_to_much_more(tree):
    blocks = {0: zlib.compress(b" " * (1 << 24), 9)}
    with pytest.raises(FileFormatError, match="unpacks to much more"):
        Parts.join(blocks)


def test_circuits_of_a_forecaster_are_checked_too(tmp_path):
    model = MOMoGPForecaster(horizon=2, max_points=12, seed=0)
    for t in range(80):
        model.learn_one({"power": float(t % 5)})
    kind, crafted = _parts(model)
    circuits = crafted["state"]["model"]["plain"] or crafted["state"]["model"]["residual"]
    circuits["trees"][0]["nodes"][-1]["leaf"]["numbers"][0] = 1 << 40
    path = tmp_path / "crafted.momo"
    container.write(path, kind, crafted)
    with pytest.raises(FileFormatError, match="leaf / numbers"):
        load(path)
