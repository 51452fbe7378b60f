"""Parameters of the table model: bad values are rejected by name."""

from __future__ import annotations

import numpy as np
import pytest

from momostream.batch.experts import ExpertSpec
from momostream.batch.settings import EXACT_ROWS, LOCAL_ROWS, Settings


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("coupling", ["", None, "Shared", 1]),
        ("hyperparameters", ["none"]),
        ("outputs", ["both"]),
        ("split_by", ["random"]),
        ("group_by", ["relevance"]),
        ("weights", ["bayes", None]),
        ("stacking", ["kfold"]),
        ("start", ["centre"]),
        ("max_points", [1, 0, -5, 10.0, "10", True, np.nan]),
        ("n_components", [0, None, 1.5, "2", False]),
        ("n_cells", [0, None, 2.0]),
        ("n_groups", [0, None]),
        ("mixture_depth", [-1, 0.5, "all"]),
        ("n_blocks", [1, None]),
        ("tuning_points", [1, None, 1e3]),
        ("max_iterations", [-1, None, 2.5]),
        ("restarts", [-1, None]),
        ("memory_budget", [-1, 1e6]),
        ("discount", [0.0, -0.5, 1.1, np.nan, np.inf, None, "1", True]),
        ("verbose", ["yes", 3, None]),
        ("structure", ["gate", 3]),
        (
            "experts",
            [
                "linear",
                (),
                None,
                3,
                (3,),
                (None,),
                ("matern99",),
                ("linear", "linear"),
                ("warped linear",),
                ("odd rbf",),
                ("warped warped rbf",),
                ("rbf+cubic",),
                ("",),
            ],
        ),
    ],
)
def test_a_bad_value_is_rejected_by_the_name_of_its_parameter(name, values):
    for value in values:
        with pytest.raises((ValueError, TypeError), match=name):
            Settings(**{name: value})


@pytest.mark.parametrize("changes", [{"experts": ("linear",)}, {"experts": ("residual rbf",)}, {"discount": 0.9}])
def test_posterior_weights_are_rejected_where_there_is_no_evidence(changes):
    with pytest.raises(ValueError, match="weights='posterior' needs"):
        Settings(**{"experts": ("rbf",), "weights": "posterior", **changes})


def test_good_values_at_the_edge_are_accepted():
    Settings(
        max_points=2,
        n_components=1,
        n_cells=1,
        mixture_depth=0,
        n_blocks=2,
        max_iterations=0,
        memory_budget=0,
        discount=1,
        verbose=True,
        n_groups=np.int64(2),
    )


def test_experts_are_parsed():
    both = ExpertSpec.parse("warped residual matern52+linear")
    assert (both.warped, both.residual, str(both.covariance)) == (True, True, "matern52+linear")
    assert ExpertSpec.parse("linear").covariance is None


def test_max_points_none_keeps_moderate_data_whole():
    settings = Settings()
    assert settings.plan(EXACT_ROWS).max_points == EXACT_ROWS
    assert settings.plan(EXACT_ROWS + 1).max_points == LOCAL_ROWS
    assert Settings(max_points=77).plan(10**6).max_points == 77
