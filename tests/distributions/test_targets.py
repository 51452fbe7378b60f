"""Maps between the units of users and those of the model: bounds, transforms, offsets."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from momostream.distributions.bounded import Target, TargetMap
from tests.distributions.drawn import EVERY


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"transform": "exp"}, "transform must be 'log', 'sqrt', 'logit' or None, got 'exp'"),
        ({"transform": "logit", "lower": 0.0}, "'logit' needs a lower and an upper bound"),
        ({"lower": 1.0, "upper": 1.0}, "lower bound 1.0 is not below the upper bound 1.0"),
        ({"upper": -1.0, "transform": "log"}, "lower bound 0.0 is not below"),
        ({"lower": np.nan}, "bounds must be finite"),
        ({"upper": np.inf}, "bounds must be finite"),
        ({"transform": "log", "offset": -1.0}, "offset must be finite and not negative"),
        ({"transform": "log", "offset": np.nan}, "offset must be finite and not negative"),
        ({"lower": 0.0, "offset": 1.0}, "an offset needs a transform"),
    ],
)
def test_impossible_targets(arguments, message):
    with pytest.raises(ValueError, match=message):
        Target(**arguments)


@EVERY
def test_forward_and_backward(target):
    inside = np.array([target.low if target.low > -np.inf else -20.0, target.high if target.high < np.inf else 20.0])
    y = np.linspace(*inside, 101)[:, np.newaxis]
    y = y[target.is_possible(y[:, 0])]
    m = TargetMap([target])
    z = m.forward(y)
    assert np.isfinite(z).all()
    assert (np.diff(z[:, 0]) > 0.0).all()
    assert_allclose(m.backward(z), y, rtol=1e-12, atol=1e-12)
    # Wherever the model goes, the user sees values within the bounds.
    anywhere = m.backward(np.array([[-1e300], [-800.0], [-3.0], [0.0], [3.0], [800.0], [1e300], [-np.inf], [np.inf]]))
    assert ((anywhere >= target.low) & (anywhere <= target.high)).all()
    assert np.isnan(m.backward([[np.nan]])).all() and np.isnan(m.forward([[np.nan]])).all()


def test_what_the_transforms_are():
    y = np.array([2.5, 4.0])
    assert_allclose(Target(lower=2.0, transform="log").to_model(y), np.log(y - 2.0))
    assert_allclose(Target(lower=2.0, transform="log", offset=2.0).to_model(y), np.log(y))
    assert_allclose(Target(transform="sqrt").to_model(y), np.sqrt(y))
    assert_allclose(Target(lower=2.0, upper=5.0, transform="logit").to_model(y), np.log((y - 2.0) / (5.0 - y)))
    wider = Target(lower=2.0, upper=4.0, transform="logit", offset=1.0)
    assert_allclose(wider.to_model(y), np.log((y - 1.0) / (5.0 - y)))


@EVERY
def test_slopes_are_derivatives(target):
    y = np.linspace(2.1, 2.9, 5) if target.high > 2.0 else np.linspace(0.1, 0.9, 5)
    if target.upper == 2.0:
        y -= 1.0
    step = 1e-6
    slope = (target.to_model(y + step) - target.to_model(y - step)) / (2.0 * step)
    assert_allclose(target.log_slope(y), np.log(slope), atol=1e-7)


@pytest.mark.parametrize(
    ("target", "value", "message"),
    [
        (Target(lower=0.0), -1e-9, "'b' is -1e-09, below its lower bound 0.0"),
        (Target(upper=2.0), 2.5, "'b' is 2.5, above its upper bound 2.0"),
        (Target(upper=2.0), np.inf, "'b' is inf, above its upper bound 2.0"),
        (Target(transform="log"), 0.0, "'b' is 0.0, where transform 'log' is infinite or .* give it an offset"),
        (Target(transform="sqrt"), 0.0, "'b' is 0.0, where transform 'sqrt' is .* infinitely steep"),
        (Target(0.0, 1.0, "logit"), 1.0, "'b' is 1.0, where transform 'logit' is infinite"),
    ],
)
def test_impossible_values_are_named(target, value, message):
    m = TargetMap([Target(), target], names=("a", "b"))
    with pytest.raises(ValueError, match=message):
        m.forward([[-5.0, 0.5], [np.inf, value]])
    with pytest.raises(ValueError, match="target 1 is"):
        TargetMap([Target(), target]).forward([0.0, value])


@pytest.mark.parametrize(
    "target",
    [
        Target(lower=0.0, upper=1.0),
        Target(0.0, 1.0, "logit", 0.1),
        Target(0.0, 1.0, "log", 0.1),
        Target(0.0, 1.0, "sqrt", 1.0),
    ],
)
def test_values_on_bounds(target):
    m = TargetMap([target])
    assert_allclose(m.backward(m.forward([[0.0], [1.0]])), [[0.0], [1.0]], atol=1e-15)


def test_maps_of_several_targets():
    m = TargetMap([Target(), Target(transform="log")], names=("a", "b"))
    assert not m.is_plain and m.n_targets == 2
    assert_array_equal(m.select(np.array([1])).changed, [0])
    assert m.select(np.array([1])).names == ("b",)
    Y = np.array([1.0, np.e])
    assert_allclose(m.forward(Y), [1.0, 1.0])
    assert_array_equal(Y, [1.0, np.e])
    with pytest.raises(ValueError, match="got 1 names for 2 targets"):
        TargetMap([Target(), Target()], names=("a",))
