"""River metrics of predictive distributions: values, gaps, taking back, river's own machinery."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose
from river import base, compose, evaluate, metrics, preprocessing, proba, utils
from scipy import stats

from momostream.distributions.joint import MixtureDistribution
from momostream.distributions.mixtures import StudentT
from momostream.distributions.prediction import Prediction
from momostream.estimators.metrics import CRPS, NLPD, Coverage, EnergyScore, Width, WithDist

TARGETS = ("a", "b")
S = np.array([[1.0, 0.6], [0.6, 4.0]])
ALL = [NLPD, CRPS, EnergyScore, Coverage, Width]


def predicted(*mean, dof=np.inf, targets=TARGETS):
    P = len(mean)
    distribution = StudentT(np.array([mean]), S[:P, :P], dof)
    return Prediction(targets[:P], np.array(mean, dtype=float), MixtureDistribution(distribution))


ROWS = [
    ({"a": 0.3, "b": -1.0}, predicted(0.0, 0.0)),
    ({"b": 2.0, "a": 5.0}, predicted(1.0, 2.0, dof=5.0)),
    ({"a": None, "b": 1.0}, predicted(1.0, 9.0)),
    ({"a": -1.0}, predicted(0.0, 0.0, dof=5.0)),
]


def run(metric, rows=ROWS):
    for y, distribution in rows:
        metric.update(y, distribution)
    return metric


def test_nlpd_is_the_mean_over_rows_of_the_joint_density():
    expected = [
        stats.multivariate_normal([0.0, 0.0], S).logpdf([0.3, -1.0]),
        stats.multivariate_t([1.0, 2.0], S, 5.0).logpdf([5.0, 2.0]),
        stats.norm(9.0, 2.0).logpdf(1.0),
        stats.t(5.0).logpdf(-1.0),
    ]
    assert_allclose(run(NLPD()).get(), -np.mean(expected), rtol=1e-9)


def test_crps_is_the_mean_over_targets_of_means_over_rows():
    metric = run(CRPS())
    scores = [distribution.crps(y) for y, distribution in ROWS]
    each = {target: np.mean([s[target] for s in scores if target in s]) for target in TARGETS}
    assert list(metric.each) == list(TARGETS)
    assert_allclose([metric.each[target] for target in TARGETS], [each[target] for target in TARGETS], rtol=1e-12)
    assert_allclose(metric.get(), np.mean(list(each.values())), rtol=1e-12)


def test_coverage_and_width():
    # 90 % of a Gaussian are within 1.645 standard deviations: only b of the third row and a of the second are not.
    coverage, width = run(Coverage()), run(Width())
    assert coverage.each == {"a": pytest.approx(2 / 3), "b": pytest.approx(2 / 3)}
    assert coverage.get() == pytest.approx(2 / 3)
    t, z = stats.t(5.0).ppf(0.95), stats.norm.ppf(0.95)
    assert width.each == {"a": pytest.approx(2 * (z + 2 * t) / 3), "b": pytest.approx(4 * (2 * z + t) / 3)}
    assert run(Coverage(0.9999)).get() == pytest.approx(5 / 6)
    assert run(Width(0.5)).get() < width.get()


def test_coverage_nearer_to_its_level_is_better():
    distribution = predicted(0.0)
    inside, outside = {"a": 0.0}, {"a": 9.0}
    exact = run(Coverage(0.5), [(inside, distribution), (outside, distribution)])
    wide = run(Coverage(0.5), [(inside, distribution), (inside, distribution)])
    narrow = run(Coverage(0.9), [(inside, distribution), (outside, distribution)])
    assert exact.is_better_than(wide) and exact > narrow and not wide > exact
    # A bound belongs to its interval.
    upper = distribution.interval(0.5)["a"][1]
    assert run(Coverage(0.5), [({"a": upper}, distribution)]).get() == 1.0


def test_energy_score_of_one_target_is_its_crps():
    distribution = predicted(0.5, dof=6.0)
    rows = [({"a": y}, distribution) for y in np.linspace(-2.0, 3.0, 40)]
    assert_allclose(run(EnergyScore(400), rows).get(), run(CRPS(), rows).get(), rtol=0.03)


def test_energy_score_of_a_gaussian():
    # E|Y - Y'| is sqrt(2) E|Y| for a centred Gaussian, and E|Y| = sqrt(pi / 2) for two independent unit ones.
    distribution = Prediction(TARGETS, np.zeros(2), MixtureDistribution(StudentT(np.zeros((1, 2)), np.eye(2), np.inf)))
    score = run(EnergyScore(4000), [({"a": 0.0, "b": 0.0}, distribution)]).get()
    assert_allclose(score, np.sqrt(np.pi / 2.0) * (1.0 - np.sqrt(0.5)), rtol=0.05)


def test_energy_score_depends_on_seed_and_row_only():
    y, distribution = ROWS[0]
    same = [run(EnergyScore(20, seed=1), [(y, distribution)]).get() for _ in range(2)]
    other = run(EnergyScore(20, seed=2), [(y, distribution)]).get()
    swapped = run(EnergyScore(20, seed=1), [(dict(reversed(y.items())), distribution)]).get()
    assert same[0] == same[1] == swapped != other
    # The draws of one row are not those of the next.
    near = {"a": np.nextafter(0.3, 1.0), "b": -1.0}
    assert abs(run(EnergyScore(20, seed=1), [(near, distribution)]).get() - same[0]) > 1e-6


@pytest.mark.parametrize("metric", ALL)
def test_rows_are_taken_back(metric):
    once = run(metric(), ROWS[:2])
    more = run(metric(), ROWS)
    for y, distribution in ROWS[:1:-1]:
        more.revert(y, distribution)
    assert_allclose(more.get(), once.get(), rtol=1e-12)
    for y, distribution in ROWS[:2]:
        more.revert(y, distribution)
    assert more.get() == 0.0
    if hasattr(more, "each"):
        assert more.each == {}


@pytest.mark.parametrize("metric", ALL)
def test_weights_count_rows(metric):
    (y0, law0), (y1, law1) = ROWS[:2]
    weighted = metric()
    weighted.update(y0, law0, 3.0)
    weighted.update(y1, law1, w=1.0)
    assert_allclose(weighted.get(), run(metric(), [ROWS[0]] * 3 + [ROWS[1]]).get(), rtol=1e-12)


@pytest.mark.parametrize("metric", ALL)
def test_what_cannot_be_scored_is_skipped(metric):
    m = metric()
    for nothing in (None, {}):
        m.update({"a": 1.0}, nothing)
        m.revert({"a": 1.0}, nothing)
    m.update({}, predicted(0.0, 0.0))
    m.update({"a": np.nan, "b": None}, predicted(0.0, 0.0))
    # A target that joined the feed after the prediction was made.
    m.update({"new": 1.0}, predicted(0.0, 0.0))
    assert m.get() == 0.0
    m.update({"a": 0.3, "b": -1.0, "new": 1.0}, ROWS[0][1])
    assert m.get() == run(metric(), ROWS[:1]).get()


@pytest.mark.parametrize("metric", ALL)
def test_unusable_values_change_nothing(metric):
    m = run(metric())
    before = m.get()
    with pytest.raises(TypeError, match="'b' is a str"):
        m.update({"a": 1.0, "b": "1.0"}, predicted(0.0, 0.0))
    with pytest.raises(ValueError, match="'a' is infinite"):
        m.update({"a": np.inf, "b": 1.0}, predicted(0.0, 0.0))
    with pytest.raises(
        TypeError, match=f"{metric.__name__} scores predictive distributions, got a dict: .*with_dist=True"
    ):
        m.update({"a": 1.0}, {"a": 1.0})
    assert m.get() == before


def test_infinite_scores_stay_infinite():
    metric = run(CRPS(), [({"a": 0.0}, predicted(0.0, dof=1.0)), ({"a": 0.0}, predicted(0.0))])
    assert metric.get() == np.inf


@pytest.mark.parametrize("metric", ALL)
def test_gaussian_of_river_is_scored_as_a_law(metric):
    distribution = predicted(1.0, 2.0)
    gaussian = proba.MultivariateGaussian._from_state(
        n=1, mean={"b": 2.0, "a": 1.0}, cov={("a", "a"): 1.0, ("a", "b"): 0.6, ("b", "b"): 4.0}, ddof=0
    )
    for y in ({"a": 0.5, "b": 3.0}, {"b": 3.0}):
        assert_allclose(run(metric(), [(y, gaussian)]).get(), run(metric(), [(y, distribution)]).get(), rtol=1e-9)


@pytest.mark.parametrize("metric", ALL)
def test_copies_and_repr(metric):
    m = run(metric())
    for twin in (pickle.loads(pickle.dumps(m)), copy.deepcopy(m)):
        assert twin.get() == m.get()
        twin.update(*ROWS[0])
        assert twin.get() != m.get()
    assert m.clone().get() == 0.0 and type(m.clone()) is metric
    assert repr(m).startswith(f"{metric.__name__}: ")
    assert m.bigger_is_better is (metric is Coverage)
    assert float(repr(m).split(": ")[1].rstrip("%")) == pytest.approx(
        m.get() * (100 if metric is Coverage else 1), abs=0.01
    )


def test_parameters_are_checked_and_cloned():
    assert EnergyScore(50, seed=7).clone().seed == 7 and Coverage(0.5).clone().level == 0.5
    with pytest.raises(ValueError, match="n_samples"):
        EnergyScore(1)
    for metric in (Coverage, Width):
        for level in (0.0, 1.0, np.nan):
            with pytest.raises(ValueError, match="level"):
                metric(level)


def test_metrics_add_up():
    together = run(NLPD() + CRPS() + Coverage(0.5) + EnergyScore() + Width())
    assert together.get() == [run(m).get() for m in (NLPD(), CRPS(), Coverage(0.5), EnergyScore(), Width())]
    with pytest.raises(ValueError, match="not compatible"):
        NLPD() + metrics.MAE()


@pytest.mark.parametrize("metric", ALL)
def test_rolling_window(metric):
    rolling = utils.Rolling(metric, window_size=2)
    for y, distribution in ROWS:
        rolling.update(y, distribution)
    assert_allclose(rolling.get(), run(metric(), ROWS[-2:]).get(), rtol=1e-12)


# -----------------------------------------------------------------------------------------------------------
# Progressive validation


class Past(base.MultiTargetRegressor):
    """The distribution of all past targets."""

    def __init__(self):
        self.distribution = proba.MultivariateGaussian()

    def learn_one(self, x, y):
        self.distribution.update(y)

    def predict_one(self, x, with_dist=False):
        if self.distribution.n_samples < 3:
            return None if with_dist else {}
        return copy.deepcopy(self.distribution) if with_dist else self.distribution.mu


def feed(n=40):
    rng = np.random.default_rng(0)
    return [({"x": float(x)}, {"a": float(x + e), "b": float(e)}) for x, e in rng.normal(size=(n, 2))]


def by_hand(metric):
    model = Past()
    for x, y in feed():
        metric.update(y, model.predict_one(x, with_dist=True))
        model.learn_one(x, y)
    return metric


def test_progressive_validation():
    for model in (Past(), compose.Pipeline(preprocessing.StandardScaler(), Past())):
        score = evaluate.progressive_val_score(feed(), WithDist(model), NLPD() + Coverage())
        assert score.get() == by_hand(NLPD() + Coverage()).get()


def test_progressive_validation_with_delay():
    score = evaluate.progressive_val_score(feed(), WithDist(Past()), CRPS(), delay=5)
    assert score.each.keys() == {"a", "b"}
    # Later labels, fewer and poorer predictions; not much poorer.
    at_once = by_hand(CRPS()).get()
    assert score.get() == pytest.approx(at_once, rel=0.3) and score.get() != at_once


def test_model_that_does_not_say_its_law_is_told_how():
    with pytest.raises(TypeError, match=r"WithDist\(model\)"):
        evaluate.progressive_val_score(feed(), Past(), NLPD())
    assert NLPD().works_with(WithDist(Past())) and not NLPD().works_with(preprocessing.StandardScaler())
    assert str(WithDist(Past())) == "WithDist(Past)"
    assert isinstance(WithDist(Past()).clone().model, Past)
