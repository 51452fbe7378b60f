"""Covariance functions by name: codes for the kernels, packing of log-parameters, priors and bounds.

A covariance over ``n_inputs`` covariates has the parameters ``theta``::

    log lengthscale of each covariate | log noise ratio | log variance of the linear term (if it has one)

The signal has unit variance: the scale of an output belongs to the region, the noise is a ratio to it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from momostream.kernels.covariance import MATERN12, MATERN32, MATERN52, RBF

__all__ = ["KERNELS", "Covariance", "Prior", "input_std"]

Array = NDArray[np.float64]

KERNELS = {
    "matern12": MATERN12,
    "matern32": MATERN32,
    "matern52": MATERN52,
    "rbf": RBF,
}

# Below this noise ratio a factor in double precision loses its last digits.
LEAST_NOISE = 1e-8

# Log-space prior and bounds. Lengthscales are measured in deviations of their covariate, so units do not matter.
LENGTH_WIDTH, LENGTH_BOUNDS = 1.5, (-4.0, 7.0)
NOISE_CENTRE, NOISE_WIDTH, NOISE_BOUNDS = float(np.log(0.05)), 3.0, (-16.0, 2.0)
LINEAR_CENTRE, LINEAR_WIDTH, LINEAR_BOUNDS = float(np.log(0.1)), 3.0, (-12.0, 6.0)


@dataclass(frozen=True)
class Prior:
    """Independent normal priors on ``theta`` with box bounds, shapes ``(n_parameters,)``."""

    centre: Array
    width: Array
    lower: Array
    upper: Array

    def about(self, centre: Array, width: float) -> Prior:
        """The same bounds with another centre, clipped to them, and one width."""
        return Prior(np.clip(centre, self.lower, self.upper), np.full_like(centre, width), self.lower, self.upper)


@dataclass(frozen=True)
class Covariance:
    """A stationary kernel with one lengthscale per covariate (ARD), optionally plus a linear term.

    Parameters
    ----------
    name
        ``"matern12"``, ``"matern32"``, ``"matern52"`` or ``"rbf"``.
    linear
        Whether a linear term on the scaled covariates is added.

    Examples
    --------
    >>> covariance = Covariance.parse("matern32+linear")
    >>> covariance.name, covariance.linear, covariance.n_parameters(n_inputs=3)
    ('matern32', True, 5)
    """

    name: str
    linear: bool = False

    @classmethod
    def parse(cls, text: str) -> Covariance:
        """Read ``"KERNEL"`` or ``"KERNEL+linear"``."""
        name, plus, term = text.partition("+")
        if name not in KERNELS or (plus and term != "linear"):
            accepted = ", ".join(KERNELS)
            raise ValueError(f"unknown kernel {text!r}: accepted are {accepted}, each optionally followed by '+linear'")
        return cls(name, bool(plus))

    def __str__(self) -> str:
        return self.name + ("+linear" if self.linear else "")

    @property
    def code(self) -> int:
        """The number by which the compiled kernels know this covariance."""
        return KERNELS[self.name]

    def n_parameters(self, n_inputs: int) -> int:
        """Length of ``theta``."""
        return n_inputs + 1 + self.linear

    def inverse_lengths(self, theta: Array) -> Array:
        """One over the lengthscales, shape ``(n_inputs,)``."""
        return np.exp(-theta[: self.n_inputs(theta)])

    def lengthscales(self, theta: Array) -> Array:
        """Lengthscales in the units of the covariates, shape ``(n_inputs,)``."""
        return np.exp(theta[: self.n_inputs(theta)])

    def noise(self, theta: Array) -> float:
        """Noise variance as a ratio to the signal variance."""
        return float(np.exp(theta[self.n_inputs(theta)])) + LEAST_NOISE

    def linear_variance(self, theta: Array) -> float:
        """Variance of the linear term, 0 when there is none."""
        return float(np.exp(theta[-1])) if self.linear else 0.0

    def n_inputs(self, theta: Array) -> int:
        """How many covariates ``theta`` was packed for."""
        return len(theta) - 1 - self.linear

    def prior(self, std: Array) -> Prior:
        """Priors that scale with the data.

        Parameters
        ----------
        std
            Standard deviation of each covariate, positive, shape ``(n_inputs,)``.

        Returns
        -------
        Prior
            A lengthscale is expected near ``std * sqrt(n_inputs)``: distances between rows grow with the
            number of covariates, and this keeps the correlation of typical rows away from 0 and 1.
        """
        n_inputs = len(std)
        log_std = np.log(std)
        parts = [
            (log_std + 0.5 * np.log(max(n_inputs, 1)), LENGTH_WIDTH, log_std, LENGTH_BOUNDS),
            (np.array([NOISE_CENTRE]), NOISE_WIDTH, np.zeros(1), NOISE_BOUNDS),
        ]
        if self.linear:
            parts.append((np.array([LINEAR_CENTRE]), LINEAR_WIDTH, np.zeros(1), LINEAR_BOUNDS))
        return Prior(
            centre=np.concatenate([centre for centre, _, _, _ in parts]),
            width=np.concatenate([np.full(len(centre), width) for centre, width, _, _ in parts]),
            lower=np.concatenate([base + bounds[0] for _, _, base, bounds in parts]),
            upper=np.concatenate([base + bounds[1] for _, _, base, bounds in parts]),
        )


def input_std(X: Array) -> Array:
    """Deviation of each covariate, 1 where it does not vary, or its round-off where that is larger."""
    std = X.std(axis=0) if len(X) else np.ones(X.shape[1])
    round_off = 1e-13 * np.abs(X).max(axis=0, initial=0.0)
    return np.where(std > round_off, std, np.maximum(round_off, 1.0))
