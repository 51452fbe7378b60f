"""What plots of lengthscales and shares show, read back from the figures."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose

from momostream.estimators.table import MOMoGPRegressor
from momostream.runs.scores import Track
from momostream.show.plots import plot_lengthscales, plot_relevance
from tests.show.plots.figures import INPUTS, OUTPUTS, fitted, frames, streamed, texts, words


def test_lengthscales_show_spread_over_lengthscale(gated):
    ax, bar = plot_lengthscales(gated).axes
    table = gated.lengthscales()
    shown = ax.images[0].get_array()
    assert shown.shape == (len(table), 2)
    region = gated.model_.experts[0].regions[0]
    assert_allclose(shown[0], region.X.std(axis=0) / table[INPUTS].to_numpy()[0])
    assert words(ax.get_xticklabels()) == INPUTS
    assert words(ax.get_yticklabels()) == [f"{expert}, region {number}" for expert, number, *_ in table.index]
    assert [text.get_text() for text in ax.texts] == [f"{value:.2g}" for value in shown.ravel()]
    assert bar.get_ylabel() == "standard deviation / lengthscale"
    assert len(ax.lines) == 1  # between the two experts


def test_lengthscales_name_the_outputs_of_a_region():
    model = fitted(experts=("matern32",), coupling="independent", weights="uniform")
    labels = words(plot_lengthscales(model).axes[0].get_yticklabels())
    assert labels == [f"matern32, region {p} ({name})" for p, name in enumerate(OUTPUTS)]


def test_lengthscale_of_a_constant_covariate_is_left_out():
    X, Y = frames()
    model = MOMoGPRegressor(("matern32",), max_iterations=2, random_state=0).fit(X.assign(pitch=3.0), Y)
    ax = plot_lengthscales(model).axes[0]
    assert ax.images[0].get_array().mask.tolist() == [[False, True]]
    assert len(texts(ax.figure)) == 1
    all_constant = MOMoGPRegressor(("matern32",), max_iterations=2).fit(X.assign(pitch=3.0, wind=1.0), Y)
    figure = plot_lengthscales(all_constant)
    figure.draw_without_rendering()
    assert texts(figure) == []


def test_many_regions_are_labelled_by_expert():
    model = fitted(experts=("matern32",), max_points=8, mixture_depth=None, max_iterations=0)
    n_regions = len(model.model_.experts[0].regions)
    assert n_regions > 40
    ax = plot_lengthscales(model).axes[0]
    assert words(ax.get_yticklabels()) == [f"matern32\n{n_regions} regions"]
    assert not ax.texts


def test_lengthscales_of_a_stream(stream):
    ax = plot_lengthscales(stream).axes[0]
    shown = ax.images[0].get_array()
    entries = stream.hyperparameters
    assert words(ax.get_xticklabels()) == ["clock", "pitch", "wind"]
    assert shown.shape == (len(entries), 3)
    leaves = [leaf for tree in stream._model.trees for leaf in tree.leaves()]
    for row, entry, leaf in zip(shown, entries, leaves, strict=True):
        spread = stream._model.rows.gather(leaf.numbers)[0].std(axis=0)
        lengths = [entry["lengthscales"].get(name, np.nan) for name in ("clock", "pitch", "wind")]
        assert_allclose(np.ma.filled(row, np.nan), spread / lengths)
    without = plot_lengthscales(streamed(40, clock=False)).axes[0]
    assert words(without.get_xticklabels()) == ["pitch", "wind"]
    with pytest.raises(ValueError, match="no lengthscales"):
        plot_lengthscales(streamed(20, experts=("lags",)))


def test_linear_expert_has_no_lengthscales():
    with pytest.raises(ValueError, match="no lengthscales"):
        plot_lengthscales(fitted(experts=("linear",)))


def heights_of(ax):
    """Upper edges of the areas at the last row, from the bottom up."""
    tops = []
    for area in ax.collections:
        vertices = area.get_paths()[0].vertices
        tops.append(vertices[vertices[:, 0] == vertices[:, 0].max(), 1].max())
    return tops


def test_relevance_is_stacked_largest_first():
    shares = pd.DataFrame({"pitch": [0.1, 0.2], 3: [0.6, 0.5], "clock": [0.3, np.nan]}, pd.Index([64, 128], name="row"))
    ax = plot_relevance(shares).axes[0]
    assert words(ax.get_legend().get_texts()) == ["pitch", "clock", "3"]
    assert_allclose(heights_of(ax), [0.5, 0.5, 0.7])
    assert (ax.get_xlabel(), ax.get_xlim()) == ("row", (64, 128))


def test_small_shares_are_summed_up():
    values = np.tile(np.arange(30.0, 0.0, -1.0) / 465, (3, 1))
    ax = plot_relevance(pd.DataFrame(values, columns=[f"x{k}" for k in range(30)])).axes[0]
    assert words(ax.get_legend().get_texts())[:2] == ["23 others", "x6"]
    assert_allclose(heights_of(ax)[-1], 1.0)
    assert_allclose(heights_of(ax)[-2], values[0, :7].sum())


def test_relevance_of_a_track_and_of_a_single_row():
    track = Track(["power"])
    track._shares = [(64, {"wind": 0.25, "clock": 0.75})]
    ax = plot_relevance(track).axes[0]
    assert_allclose(heights_of(ax), [0.75, 1.0])
    assert ax.get_xlim() == (63.5, 64.5)


def test_relevance_of_a_history_of_weights(forecaster):
    history = forecaster.weights_history
    ax = plot_relevance(history).axes[0]
    last = history[history["row"] == history["row"].max()].groupby("expert")["weight"].mean()
    order = history.groupby("expert")["weight"].mean().sort_values(ascending=False).index
    assert_allclose(heights_of(ax)[:7], np.cumsum(last[order])[:7])
    assert_allclose(heights_of(ax)[7:], 1.0)
    assert words(ax.get_legend().get_texts())[::-1] == [*order[:7], f"{len(order) - 7} others"]
