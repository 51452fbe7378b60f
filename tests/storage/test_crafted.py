"""Files with a valid checksum and contents that do not fit: refused in words, before compiled code sees them."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from momostream import MOMoGPForecaster, MOMoGPRegressor, load
from momostream.storage import container
from momostream.storage.blocks import Parts
from momostream.storage.container import FileFormatError


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
    "leaf / blocks": lambda tree: set_(node(tree, "leaf")["leaf"], "blocks", [(0, 1 << 30)]),
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
