"""Random distributions for the tests, and integrals over them."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from momostream.distributions.bounded import Target
from momostream.distributions.marginals import Marginals
from momostream.distributions.mixtures import Mixture, Product, Routed, StudentT

TARGETS = [
    Target(lower=0.0),
    Target(upper=1.0),
    Target(lower=-1.0, upper=2.0),
    Target(transform="log", upper=50.0),
    Target(lower=2.0, upper=1e4, transform="log", offset=0.1),
    Target(transform="sqrt"),
    Target(lower=-3.0, upper=9.0, transform="sqrt", offset=0.5),
    Target(lower=1.0, upper=3.0, transform="logit"),
    Target(lower=1.0, upper=3.0, transform="logit", offset=0.01),
]
EVERY = pytest.mark.parametrize("target", TARGETS, ids=lambda t: f"{t.transform}[{t.lower},{t.upper}]+{t.offset}")


def random_scale(rng, n_targets, n_rows=None):
    shape = (n_targets, n_targets + 1) if n_rows is None else (n_rows, n_targets, n_targets + 1)
    A = rng.normal(size=shape)
    return A @ np.swapaxes(A, -1, -2)


def random_correlation(rng, n_targets, n_rows=None):
    S = random_scale(rng, n_targets, n_rows)
    d = np.sqrt(np.diagonal(S, axis1=-2, axis2=-1))
    return S / (d[..., :, np.newaxis] * d[..., np.newaxis, :])


def random_dofs(rng, size, least=4.5):
    return np.where(rng.random(size) < 0.25, np.inf, least + rng.exponential(8.0, size))


def random_student(rng, n_rows, n_targets):
    per_row = bool(rng.integers(2))
    return StudentT(
        rng.normal(size=(n_rows, n_targets)),
        random_scale(rng, n_targets, n_rows if per_row else None),
        random_dofs(rng, n_rows),
        rng.uniform(0.5, 2.0, n_rows),
    )


def random_distribution(rng, n_rows, n_targets, depth):
    """A nested structure of all kinds of nodes."""
    kind = rng.integers(4) if depth else 0
    if kind == 1 and n_targets > 1:
        order = rng.permutation(n_targets)
        cut = int(rng.integers(1, n_targets))
        positions = [order[:cut], order[cut:]]
        return Product([random_distribution(rng, n_rows, at.size, depth - 1) for at in positions], positions)
    if kind == 2:
        n_children = int(rng.integers(1, 4))
        log_weights = rng.normal(size=(n_rows, n_children) if rng.integers(2) else n_children)
        children = [random_distribution(rng, n_rows, n_targets, depth - 1) for _ in range(n_children)]
        return Mixture(log_weights, children)
    if kind == 3:
        index = rng.integers(0, 3, n_rows)
        sizes = np.bincount(index, minlength=3)
        return Routed(index, [random_distribution(rng, int(size), n_targets, depth - 1) for size in sizes])
    return random_student(rng, n_rows, n_targets)


def random_marginals(rng, n_rows, n_components, n_targets, spread=2.0, least_dof=4.5):
    shape = (n_rows, n_components, n_targets)
    weights = rng.dirichlet(np.ones(n_components), size=(n_rows, n_targets)).transpose(0, 2, 1)
    return Marginals(
        weights,
        spread * rng.normal(size=shape),
        np.exp(0.5 * rng.normal(size=shape)),
        random_dofs(rng, shape, least_dof),
    )


def nested_distribution():
    """A root sum over a leaf, a product of a sum and a leaf, and a gate over both: 4 rows, 3 targets."""
    rng = np.random.default_rng(3)
    pair = Mixture([0.3, -0.4], [random_student(rng, 4, 2), random_student(rng, 4, 2)])
    product = Product([pair, random_student(rng, 4, 1)], [[2, 0], [1]])
    gate = Routed([1, 0, 1, 1], [random_distribution(rng, 1, 3, 1), random_student(rng, 3, 3)])
    log_weights = np.log([[0.2, 0.5, 0.3], [0.6, 0.1, 0.3], [0.1, 0.1, 0.8], [1.0, 1e-9, 0.5]])
    return Mixture(log_weights, [random_student(rng, 4, 3), product, gate])


def with_gaps(rng, Y, share=0.3):
    return np.where(rng.random(Y.shape) < share, np.nan, Y)


def integral(d, row=0, n=241):
    """Integral of the joint density of two targets over a grid of quantiles."""
    one = d[row]
    q = stats.norm.cdf(np.linspace(-6.5, 6.5, n))
    y = one.quantile(q)[:, 0]
    a, b = np.meshgrid(y[:, 0], y[:, 1], indexing="ij")
    many = d[np.full(a.size, row)]
    density = np.exp(many.log_pdf(np.stack([a.ravel(), b.ravel()], axis=1))).reshape(a.shape)
    return np.trapezoid(np.trapezoid(density, y[:, 1], axis=1), y[:, 0])
