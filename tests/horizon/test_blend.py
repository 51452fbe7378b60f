"""From many forecasts to one distribution: blend, variances and tails, correlations of steps and series."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats

from momostream.distributions.planes import LOCATION, SCALE, STD, WEIGHT
from momostream.horizon.blend import LUMP, LUMP_WIDTH, Blend, BlendMixture, StepSeriesCorrelation
from momostream.kernels.stack import EXACT
from tests import naive

NAN = np.nan


# ---------------------------------------------------------------------------------------------- the blend


def teach(blend, errors):
    for row in errors:
        blend.learn(row)
    return blend


def expert_errors(rng, n_rows, sizes, horizon=1, n_series=1, shared=0.5):
    """Errors of experts (rows, K, H, P): what surprises all, and what each does wrong."""
    own = np.array(sizes)[:, None, None] * rng.normal(size=(n_rows, len(sizes), horizon, n_series))
    return shared * rng.normal(size=(n_rows, 1, horizon, n_series)) + own


def test_the_blend_finds_the_better_expert():
    errors = expert_errors(np.random.default_rng(0), 300, [0.1, 2.0, 3.0])
    blend = teach(Blend(3, 1, 1), errors)
    assert blend.weights[0, 0, 0] > 0.9
    assert blend.weights.sum() == pytest.approx(1.0)


def test_the_blend_of_independent_experts_is_better_than_each():
    rng = np.random.default_rng(0)
    blend = teach(Blend(3, 2, 2), expert_errors(rng, 300, [1.0, 1.0, 1.5], 2, 2))
    later = expert_errors(rng, 2000, [1.0, 1.0, 1.5], 2, 2)
    mixed = np.array([blend.mean(row) for row in later])
    assert (np.mean(mixed**2, axis=0) < 0.8 * np.mean(later**2, axis=0).min(axis=0)).all()


def test_the_blend_comes_near_the_best_mixture_of_all_its_errors():
    rng = np.random.default_rng(1)
    errors = expert_errors(rng, 400, [0.6, 1.0, 1.4])
    blend = teach(Blend(3, 1, 1), errors)
    M = blend.moments[0, 0] + 0.07 * np.diag(blend.moments[0, 0]).min() * np.eye(3)
    assert_allclose(blend.found[0, 0], naive.best_mixture(M), atol=0.01)


def test_an_expert_that_has_become_better_is_trusted_the_sooner_the_nearer_the_step():
    rng, blend = np.random.default_rng(0), Blend(n_experts=2, horizon=9, n_series=1)
    for n in range(600):
        learning = 3.0 if n < 300 else 0.3
        blend.learn(rng.normal(size=(2, 9, 1)) * np.array([1.0, learning])[:, None, None])
    assert blend.weights[0, 0, 1] > 0.6
    assert blend.weights[0, 0, 1] > blend.weights[8, 0, 1] + 0.05


def test_each_series_comes_to_weights_of_its_own_which_are_alike_at_first():
    rng = np.random.default_rng(0)
    errors = rng.normal(size=(4000, 2, 2, 2))
    errors[:, 0] *= np.array([0.1, 3.0])
    apart = []
    for n_rows in (100, 4000):
        weights = teach(Blend(2, 2, 2), errors[:n_rows]).weights[:, :, 0]
        assert (weights[:, 0] > weights[:, 1]).all()
        apart.append(weights[0, 0] - weights[0, 1])
    assert_array_equal(weights > 0.8, [[True, False], [True, False]])
    assert apart[0] < 0.7 * apart[1]


def test_near_steps_have_weights_more_alike_than_far_ones():
    rng = np.random.default_rng(0)
    errors = rng.normal(size=(400, 2, 12, 1))
    # The first is better at the first steps, and worse from the seventh on.
    errors[:, 0] *= np.where(np.arange(12) < 6, 0.3, 3.0)[:, None]
    weights = teach(Blend(2, 12, 1), errors).weights[:, 0, 0]
    assert weights[0] > 0.7
    assert weights[11] < 0.6
    assert (np.diff(weights) <= 1e-9).all()


def test_a_young_blend_stays_near_the_last_value():
    # The second expert seems to be a little better.
    errors = np.random.default_rng(0).normal(size=(300, 2, 1, 1))
    errors[:, 1] *= 0.8
    weights = [teach(Blend(2, 1, 1), errors[:n]).weights[0, 0, 0] for n in (0, 6, 300)]
    assert weights[0] == 1.0
    assert weights[1] > 0.9
    assert weights[2] < 0.45


def test_experts_must_prove_themselves_for_longer_at_far_steps():
    # Errors of forecasts 24 steps ahead overlap: as many rows are fewer trials.
    rng = np.random.default_rng(0)
    errors = np.repeat(rng.normal(size=(150, 1, 1, 1)), 24, axis=2) * np.array([1.0, 0.8])[:, None, None]
    last = teach(Blend(2, 24, 1), errors).weights[:, 0, 0]
    assert last[0] < 0.2
    assert last[23] > 0.5
    assert (np.diff(last) > -1e-9).all()


def test_a_small_lead_counts_in_the_end():
    # A threshold that does not fade would leave half to the last value: 2,500 rows are 78 trials of 24 steps.
    errors = np.repeat(np.random.default_rng(0).normal(size=(2500, 1, 1, 1)), 24, axis=2)
    errors = errors * np.array([1.0, 0.94])[:, None, None]
    blend = teach(Blend(2, 24, 1), errors[:200])
    assert blend.weights[23, 0, 0] > 0.9
    assert teach(blend, errors[200:]).weights[23, 0, 0] < 0.3


def test_caution_fades_with_the_number_of_trials_and_is_longest_at_far_steps():
    # An expert with half of the variance has two thirds of the weight at best; caution draws the two together.
    rng = np.random.default_rng(0)
    errors = np.repeat(rng.normal(size=(3000, 2, 1, 1)), 24, axis=2) * np.array([1.0, np.sqrt(0.5)])[:, None, None]
    young, old = (teach(Blend(2, 24, 1), errors[:n]).found[:, 0, 1] for n in (60, 3000))
    assert young[23] < 0.62
    assert old[23] > young[23] + 0.02
    cautious = Blend(2, 24, 1)
    teach(cautious, errors)
    assert cautious._caution[0] < 0.1 * cautious._caution[23] < 0.02


def test_errors_that_are_not_known_teach_nothing():
    rng = np.random.default_rng(0)
    blend, taught = (teach(Blend(2, 2, 1), expert_errors(np.random.default_rng(1), 50, [1.0, 2.0], 2)) for _ in "ab")
    row = expert_errors(rng, 1, [1.0, 2.0], 2)[0]
    row[:, 1] = NAN
    taught.learn(row)
    assert_array_equal(taught.moments[1], blend.moments[1])
    assert (taught.moments[0] != blend.moments[0]).all()
    assert np.isfinite(taught.weights).all()


def test_the_blend_follows_a_change():
    rng = np.random.default_rng(0)
    blend = teach(Blend(2, 1, 1), expert_errors(rng, 500, [0.1, 2.0]))
    teach(blend, expert_errors(rng, 1000, [2.0, 0.1]))
    assert blend.weights[0, 0, 1] > 0.8


def test_units_do_not_matter_to_the_blend():
    errors = expert_errors(np.random.default_rng(0), 200, [0.5, 1.0, 2.0])
    one, other = teach(Blend(3, 1, 1), errors), teach(Blend(3, 1, 1), errors * 2.0**100)
    assert_array_equal(one.weights, other.weights)


def test_one_expert_has_all_the_weight():
    assert_array_equal(teach(Blend(1, 2, 1), np.ones((5, 1, 2, 1))).weights, 1.0)


def test_experts_that_are_never_wrong():
    blend = teach(Blend(2, 1, 1), np.zeros((20, 2, 1, 1)))
    assert_allclose(blend.found[0, 0], [0.9, 0.1])
    assert_array_equal(blend.weights[0, 0], [1.0, 0.0])
    # One who is beats one who was once wrong.
    assert np.isfinite(teach(blend, np.array([[[[0.0]], [[1.0]]]] * 20)).weights).all()


def test_the_mean_is_weighted_by_expert():
    rng = np.random.default_rng(0)
    blend = teach(Blend(3, 2, 2), expert_errors(rng, 30, [0.5, 1.0, 2.0], 2, 2))
    locations = rng.normal(size=(3, 2, 2))
    for h, p in np.ndindex(2, 2):
        assert blend.mean(locations)[h, p] == pytest.approx(blend.weights[h, p] @ locations[:, h, p])


def test_a_restored_blend_resumes_bit_for_bit():
    errors = expert_errors(np.random.default_rng(0), 60, [0.5, 1.0], 2, 2)
    blend = teach(Blend(2, 2, 2), errors[:30])
    state = blend.state()
    copy = Blend(2, 2, 2)
    copy.restore(state)
    teach(blend, errors[30:])
    again = Blend(2, 2, 2)
    again.restore(state)
    for one in (copy, again):
        assert_array_equal(teach(one, errors[30:]).weights, blend.weights)


# ---------------------------------------------------------------------------------------------- the distribution


def planes_of(mixture, blend, last, n_missing, rests=None, least_change=0.0):
    """The distribution around a blend and, for components that may stand still, around the last values."""
    rests = np.zeros(mixture.n_series) if rests is None else rests
    least = np.full(mixture.n_series, least_change)
    return mixture.planes(blend, np.broadcast_to(last, blend.shape), last, n_missing, rests, least)


def learn(mixture, y, planes, rests=0.0):
    return mixture.learn(y, planes, np.full(y.shape, rests))


def simulate(mixture, rng, n_rows, size, gaps=0.0, last=1.0, around=0.0):
    """Forecasts, `around` so far from zero, whose errors have a size per step and series; returns levels of values."""
    H, P = mixture.horizon, mixture.n_series
    levels = []
    for _ in range(n_rows):
        centre = around * rng.normal(size=(1, P))
        y = centre + size * rng.normal(size=(H, P))
        y[rng.random(y.shape) < gaps] = NAN
        planes = planes_of(mixture, np.repeat(centre, H, axis=0), np.full(P, last), np.zeros(P))
        levels.append(probability(planes, y))
        learn(mixture, y, planes)
    return np.array(levels)


def probability(planes, y):
    """Of a value below y, by each output's mixture."""
    location, _, scale, dof, weight = planes
    return (weight * stats.t.cdf((y.ravel() - location) / scale, dof)).sum(axis=0).reshape(y.shape)


def is_law(planes):
    return (
        np.isfinite(planes).all()
        and (planes[1:4] > 0.0).all()
        and (planes[WEIGHT] >= 0.0).all()
        and np.allclose(planes[WEIGHT].sum(axis=0), 1.0)
    )


@pytest.mark.parametrize("gaps", [0.0, 0.7])
@pytest.mark.parametrize("last", [0.0, 1e6, -1e-6])
@pytest.mark.parametrize("size", [0.0, 1e-9, 1e9])
def test_laws_are_finite_from_the_first_row_on(gaps, last, size):
    rng = np.random.default_rng(0)
    mixture = BlendMixture(3, 2)
    for n in range(40):
        planes = planes_of(mixture, np.full((3, 2), last), np.full(2, last), np.zeros(2))
        # A standard deviation may be zero where there was no error; a scale is not, once values give it a size.
        assert np.isfinite(planes).all()
        assert (planes[SCALE] > 0.0).all() or size == 0.0
        assert_allclose(planes[WEIGHT].sum(axis=0), 1.0)
        y = last + size * rng.normal(size=(3, 2))
        # Steps come true one after the other.
        y[n + 1 :] = NAN
        y[:, rng.random(2) < gaps] = NAN
        scores = learn(mixture, y, planes)
        assert (np.isnan(scores) | np.isfinite(scores)).all()


def test_the_law_before_any_value_is_as_wide_as_a_value():
    planes = planes_of(BlendMixture(4, 2), np.zeros((4, 2)), np.array([0.0, 100.0]), np.zeros(2)).reshape(5, 5, 4, 2)
    assert is_law(planes.reshape(5, 5, -1))
    assert_allclose(planes[STD, 0, :, 0], np.sqrt(np.arange(1.0, 5.0)))
    assert_allclose(planes[STD, 0, :, 1], 100.0 * np.sqrt(np.arange(1.0, 5.0)))


def test_steps_without_errors_are_guessed_from_the_longest_that_has_some():
    mixture = BlendMixture(4, 1)
    rng = np.random.default_rng(0)
    for _ in range(200):
        y = np.array([1.0, 2.0, NAN, NAN])[:, None] * rng.normal(size=(4, 1))
        learn(mixture, y, planes_of(mixture, np.zeros((4, 1)), np.zeros(1), np.zeros(1)))
    std = planes_of(mixture, np.zeros((4, 1)), np.zeros(1), np.zeros(1))[1, 2]
    assert_allclose(std[2:], std[1] * np.sqrt([1.5, 2.0]))
    assert_allclose(std[:2], [1.0, 2.0], rtol=0.2)


@pytest.mark.parametrize("step", [0, 1, 2, 3])
def test_one_step_without_errors_among_others_that_have_some(step):
    # A sensor that reports at some rows only.
    mixture = BlendMixture(4, 2)
    rng = np.random.default_rng(0)
    for _ in range(100):
        y = rng.normal(size=(4, 2))
        y[step, 1] = NAN
        learn(mixture, y, planes_of(mixture, np.zeros((4, 2)), np.full(2, 5.0), np.zeros(2)))
    planes = planes_of(mixture, np.zeros((4, 2)), np.full(2, 5.0), np.zeros(2))
    assert is_law(planes)
    # As those beside it, those around the last value being wider.
    std = planes[STD].reshape(5, 4, 2)
    assert (std[:, step, 1] > 0.3).all()
    assert (std[:3, step, 1] < 4.0).all()


def test_stds_widen_with_missing_rows():
    mixture = BlendMixture(4, 2)
    simulate(mixture, np.random.default_rng(0), 300, np.arange(1.0, 5.0)[:, None], around=30.0)

    def stds(n_missing):
        planes = planes_of(mixture, np.zeros((4, 2)), np.zeros(2), np.array([0.0, n_missing]))
        return planes[STD].reshape(5, 4, 2)[2]

    usual = stds(0)
    for n in range(1, 12):
        assert (stds(n)[:, 1] > stds(n - 1)[:, 1]).all()
        assert_array_equal(stds(n)[:, 0], usual[:, 0])
    # As a forecast from where the last value was; beyond the horizon in proportion to the root.
    assert_array_equal(stds(2)[:2, 1], usual[2:, 1])
    assert_allclose(stds(11)[-1, 1], usual[-1, 1] * np.sqrt(15 / 4))
    # Nothing is further away than the series goes.
    assert_allclose(stds(10_000)[:, 1], 30.0, rtol=0.2)


@pytest.mark.parametrize("gaps", [0.0, 0.3])
def test_intervals_cover_what_they_promise(gaps):
    mixture = BlendMixture(2, 2)
    size = np.array([[1.0, 10.0], [2.0, 0.01]])
    levels = simulate(mixture, np.random.default_rng(0), 1500, size, gaps=gaps, last=0.3)[300:]
    for h, p in np.ndindex(2, 2):
        inside = np.abs(levels[:, h, p][~np.isnan(levels[:, h, p])] - 0.5)
        for level in (0.5, 0.8, 0.95):
            assert np.mean(inside < 0.5 * level) == pytest.approx(level, abs=0.05)


def test_the_middle_half_is_half_where_most_errors_are_small():
    rng = np.random.default_rng(0)
    mixture, levels = BlendMixture(2, 1), []
    for _ in range(2500):
        y = np.exp(rng.normal(size=(2, 1))) * rng.normal(size=(2, 1))
        planes = planes_of(mixture, np.zeros((2, 1)), np.zeros(1), np.zeros(1))
        levels.append(probability(planes, y))
        learn(mixture, y, planes)
    assert np.mean(np.abs(np.array(levels)[500:] - 0.5) < 0.25) == pytest.approx(0.5, abs=0.03)


def test_the_lump_of_a_series_at_rest_is_as_likely_as_a_repetition():
    rng = np.random.default_rng(0)
    mixture, stays = BlendMixture(1, 1), []
    mixture.count_rests(np.full(1, 30.0))
    mixture.n_rests[:] = 1e3
    for _ in range(2000):
        y = np.zeros((1, 1)) if rng.random() < 0.6 else rng.normal(size=(1, 1))
        planes = planes_of(mixture, np.full((1, 1), 0.1), np.zeros(1), np.zeros(1), np.ones(1), least_change=0.01)
        stays.append(planes[WEIGHT, LUMP, 0])
        learn(mixture, y, planes, rests=1.0)
    assert np.mean(stays[1000:]) == pytest.approx(0.6, abs=0.03)
    assert (planes[STD, LUMP] == LUMP_WIDTH * 0.01).all()


def test_a_state_without_lumps_gets_them():
    mixture = BlendMixture(2, 1)
    state = mixture.state()
    state["mixing"][1, 2, LUMP] = 1.0
    mixture.restore(state)
    assert (mixture.mixing[1, 2, LUMP] == EXACT).all()
    assert (mixture.learnt_tails >= 0.0).all()


def test_components_at_the_last_value_lose_where_they_err_more():
    mixture = BlendMixture(1, 1)
    simulate(mixture, np.random.default_rng(0), 300, np.ones((1, 1)), last=10.0)
    still = mixture.stands_still.astype(bool)
    weight = planes_of(mixture, np.zeros((1, 1)), np.full(1, 10.0), np.zeros(1))[4, :, 0]
    assert weight[still].sum() < 0.01


def test_components_at_the_last_value_count_for_less_by_how_much_wider_they_are():
    mixture = BlendMixture(1, 2)
    mixture.masses[:], mixture.squares[:] = 50.0, 50.0
    mixture.squares[0, 3:, :, 1] = 50.0 * 9.0
    weight = planes_of(mixture, np.zeros((1, 2)), np.zeros(2), np.zeros(2))[4]
    first = mixture.mixing[0, 0, :, 0]
    assert_allclose(weight[:, 0], first, rtol=1e-12)
    expected = np.where(mixture.stands_still > 0.0, first / 81.0, first)
    assert_allclose(weight[:, 1], expected / expected.sum(), rtol=1e-9)


def test_components_at_the_last_value_win_where_the_blend_is_wrong():
    rng = np.random.default_rng(0)
    mixture = BlendMixture(1, 1)
    for _ in range(400):
        planes = planes_of(mixture, np.full((1, 1), 5.0), np.zeros(1), np.zeros(1))
        learn(mixture, 0.1 * rng.normal(size=(1, 1)), planes)
    planes = planes_of(mixture, np.full((1, 1), 5.0), np.zeros(1), np.zeros(1))
    still = mixture.stands_still.astype(bool)
    assert_array_equal(planes[LOCATION, still], 0.0)
    assert_array_equal(planes[LOCATION, ~still], 5.0)
    assert planes[WEIGHT, still].sum() > 0.6


def test_rest_and_motion_have_distributions_of_their_own():
    rng = np.random.default_rng(0)
    mixture = BlendMixture(1, 1)
    last, resting = np.zeros(1), np.ones(1)
    for n in range(800):
        # At rest three in four values stay, in motion none does.
        at_rest = n % 2 == 0
        mixture.count_rests(np.array([float(at_rest)]))
        rests = mixture.rests(np.array([float(at_rest)]))
        planes = planes_of(mixture, np.full((1, 1), 2.0), last, np.zeros(1), rests)
        y = np.zeros((1, 1)) if at_rest and n % 8 else 2.0 + rng.normal(size=(1, 1))
        mixture.learn(y, planes, np.broadcast_to(rests, (1, 1)))
    still = mixture.stands_still.astype(bool)
    rest, motion = (planes_of(mixture, np.full((1, 1), 2.0), last, np.zeros(1), r) for r in (resting, np.zeros(1)))
    assert rest[WEIGHT, still].sum() > 0.5
    assert motion[WEIGHT, still].sum() < 0.2
    assert rest[STD, still].min() < motion[STD, still].min()


def test_a_series_counts_as_at_rest_when_it_has_been_often():
    mixture = BlendMixture(2, 2)
    for _ in range(29):
        mixture.count_rests(np.array([1.0, 0.0]))
    assert_array_equal(mixture.rests(np.ones(2)), 0.0)
    simulate(mixture, np.random.default_rng(0), 5, np.ones((2, 2)))
    mixture.count_rests(np.array([1.0, 0.0]))
    assert_array_equal(mixture.rests(np.ones(2)), [1.0, 0.0])
    # What was learnt is the beginning of both.
    assert_array_equal(mixture.squares[1, ..., 0], mixture.squares[0, ..., 0])
    assert_array_equal(mixture.squares[1, ..., 1], 0.0)


def test_scores_of_an_honest_law_are_standard_normal():
    rng = np.random.default_rng(0)
    mixture = BlendMixture(1, 1)
    scores = []
    for _ in range(1500):
        planes = planes_of(mixture, np.zeros((1, 1)), np.zeros(1), np.zeros(1))
        scores.append(learn(mixture, rng.standard_t(4.0, size=(1, 1)), planes)[0, 0])
    scores = np.array(scores[300:])
    assert scores.mean() == pytest.approx(0.0, abs=0.1)
    assert scores.std() == pytest.approx(1.0, abs=0.1)


def test_missing_values_teach_the_law_nothing():
    mixture = BlendMixture(2, 2)
    simulate(mixture, np.random.default_rng(0), 50, np.ones((2, 2)))
    before = mixture.state()
    y = np.array([[NAN, 1.0], [NAN, NAN]])
    scores = learn(mixture, y, planes_of(mixture, np.zeros((2, 2)), np.zeros(2), np.zeros(2)))
    assert_array_equal(np.isnan(scores), np.isnan(y))
    # Outputs are counted along steps and series: only the second has learnt.
    for name in ("mixing", "tails", "outputs"):
        axis = 1 if name == "outputs" else 2
        changed = (getattr(mixture, name) != before[name])[0].swapaxes(0, axis).reshape(4, -1).any(axis=1)
        assert_array_equal(changed, [False, True, False, False])
    assert_array_equal((mixture.masses != before["masses"])[0].any(axis=0), ~np.isnan(y))
    assert_array_equal((mixture.squares != before["squares"])[0].any(axis=0), ~np.isnan(y))


def test_a_restored_mixture_resumes_bit_for_bit():
    mixture = BlendMixture(2, 2)
    simulate(mixture, np.random.default_rng(0), 40, np.ones((2, 2)), gaps=0.2)
    state = mixture.state()
    copy = BlendMixture(2, 2)
    copy.restore(state)
    ends = [simulate(one, np.random.default_rng(1), 40, np.ones((2, 2)), gaps=0.2) for one in (mixture, copy)]
    assert_array_equal(*ends)
    copy.restore(state)
    assert_array_equal(simulate(copy, np.random.default_rng(1), 40, np.ones((2, 2)), gaps=0.2), ends[0])


# ---------------------------------------------------------------------------------------------- correlation


def kronecker_scores(rng, n_rows, steps, series):
    """Normal scores (rows, H, P) whose correlation is the product of that of their steps and that of their series."""
    noise = rng.normal(size=(n_rows, len(steps), len(series)))
    return np.linalg.cholesky(steps) @ noise @ np.linalg.cholesky(series).T


def near(horizon, decay):
    return decay ** np.abs(np.subtract.outer(np.arange(horizon), np.arange(horizon)))


@pytest.mark.parametrize("decay", [0.0, 0.7, 0.95])
@pytest.mark.parametrize("between", [-0.6, 0.0, 0.9])
def test_the_structure_of_simulated_scores_is_recovered(decay, between):
    rng = np.random.default_rng(0)
    steps, series = near(6, decay), np.array([[1.0, between, 0.0], [between, 1.0, 0.0], [0.0, 0.0, 1.0]])
    correlation = StepSeriesCorrelation(6, 3)
    for scores in kronecker_scores(rng, 3000, steps, series):
        correlation.learn(scores)
    assert_allclose(correlation.between_steps, steps, atol=0.12)
    assert_allclose(correlation.between_series, series, atol=0.1)


def test_structure_is_recovered_from_scores_with_gaps():
    rng = np.random.default_rng(0)
    steps, series = near(4, 0.8), np.array([[1.0, 0.7], [0.7, 1.0]])
    correlation = StepSeriesCorrelation(4, 2)
    for scores in kronecker_scores(rng, 3000, steps, series):
        scores[rng.random(scores.shape) < 0.4] = NAN
        correlation.learn(scores)
    assert_allclose(correlation.between_steps, steps, atol=0.12)
    assert_allclose(correlation.between_series, series, atol=0.12)


def test_correlation_before_the_first_score():
    correlation = StepSeriesCorrelation(5, 3)
    assert_allclose(correlation.between_steps, near(5, 0.8))
    assert_array_equal(correlation.between_series, np.eye(3))


@pytest.mark.parametrize("kind", ["same", "wild", "zero", "missing", "one cell", "unequal pairs"])
@pytest.mark.parametrize(("H", "P"), [(1, 1), (4, 3), (12, 2)])
def test_correlations_are_positive_definite_with_unit_diagonal(kind, H, P):
    rng = np.random.default_rng(0)
    correlation = StepSeriesCorrelation(H, P)
    for i in range(60):
        scores = rng.normal(size=(H, P))
        if kind == "same":
            scores[:] = scores[0, 0]
        elif kind == "wild":
            scores *= 1e6
        elif kind == "zero":
            scores[:] = 0.0
        elif kind == "missing":
            scores[:] = NAN
        elif kind == "one cell":
            scores[:] = NAN
            scores[0, 0] = 2.0
        else:
            scores[:] = scores[0, 0] * (-1.0) ** np.add.outer(np.arange(H), np.arange(P)) ** (i % 3)
            scores[rng.random((H, P)) < 0.6] = NAN
        correlation.learn(scores)
        for R in (correlation.between_steps, correlation.between_series):
            assert_allclose(np.diag(R), 1.0, atol=1e-12)
            assert_allclose(R, R.T, atol=1e-12)
            assert np.linalg.eigvalsh(R)[0] > 1e-6
            np.linalg.cholesky(R)


def test_one_wild_score_does_not_make_a_correlation():
    rng = np.random.default_rng(0)
    correlation = StepSeriesCorrelation(1, 2)
    for i in range(300):
        scores = rng.normal(size=(1, 2))
        if i == 200:
            scores[:] = 1e9
        correlation.learn(scores)
    assert abs(correlation.between_series[0, 1]) < 0.3


def test_a_restored_correlation_resumes_bit_for_bit():
    scores = kronecker_scores(np.random.default_rng(0), 60, near(3, 0.5), np.eye(2))
    correlation = StepSeriesCorrelation(3, 2)
    for row in scores[:30]:
        correlation.learn(row)
    state = correlation.state()
    copy = StepSeriesCorrelation(3, 2)
    copy.restore(state)
    for row in scores[30:]:
        correlation.learn(row)
        copy.learn(row)
    assert_array_equal(copy.between_steps, correlation.between_steps)
    assert_array_equal(copy.between_series, correlation.between_series)
    assert (state["steps"] != correlation.steps).any()


def test_a_copy_learns_no_more():
    correlation = StepSeriesCorrelation(3, 2)
    correlation.learn(np.ones((3, 2)))
    copy = correlation.copy()
    before = copy.between_steps
    assert_array_equal(before, correlation.between_steps)
    correlation.learn(np.full((3, 2), -2.0))
    assert_array_equal(copy.between_steps, before)
