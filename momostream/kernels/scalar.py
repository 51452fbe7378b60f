"""Functions of single numbers, and the constants that several rooms share."""

from __future__ import annotations

import math

import numpy as np

from momostream.kernels._compile import both, f8, kernel, ro

__all__ = [
    "FARTHEST",
    "LOG2",
    "LOG2E",
    "LOG2_HIGH",
    "LOG2_LOW",
    "NOT_POSITIVE_DEFINITE",
    "NU0",
    "OK",
    "SCALE0",
    "SQRT2",
    "TINY",
    "TINY_SINGLE",
    "TO_INTEGER",
    "UNKNOWN",
    "cosine",
    "decay",
    "dot",
    "log",
]

OK = 0
NOT_POSITIVE_DEFINITE = 1
# Inverse-gamma prior of an output's variance: how many rows it is worth, and the variance it expects.
NU0 = 2.0
SCALE0 = 0.3
# Beyond exp(-80) = 2e-35 a correlation counts as zero, and so does a number below 1e-100 in a solution, or 1e-18 in one
# of single precision: products of smaller ones would be denormal, which slows arithmetic down a hundredfold. Compared
# with the noise all are nothing.
FARTHEST = 80.0
TINY, TINY_SINGLE = 1e-100, 1e-18
# log 2 in two parts, the first with so few digits that its product with a whole number is exact; and the
# number that, added and taken away again, rounds to whole numbers.
SQRT2 = math.sqrt(2.0)
LOG2 = math.log(2.0)
LOG2E = 1.4426950408889634
LOG2_HIGH = 6.93145751953125e-1
LOG2_LOW = 1.42860682030941723212e-6
TO_INTEGER = 1.5 * 2.0**52
# pi in two parts, the same way.
PI_HIGH = 3.1415926516056060791015625
PI_LOW = 1.984187159361081e-09
# An exponent of zero, as it is stored, beside 2^52.
EXPONENT_ZERO = 2.0**52 + 1023.0
# The usual log scale of an expert before it has one.
UNKNOWN = -1e300


@kernel(both(lambda f: f8(ro(1, f), ro(1, f))))
def dot(s, t):
    """Return s . t."""
    total = 0.0
    for k in range(s.shape[0]):
        total += s[k] * t[k]
    return total


@kernel(f8(f8), reassociate=False)
def decay(a):
    """Return exp(-a) for a >= 0, and zero beyond `FARTHEST`; without a branch, so that loops of it vectorise.

    -a = k log 2 + r with an integer k: a Taylor polynomial of exp(r), times 2^k written into the exponent bits.
    Regrouping the sums would cancel the rounding to k.
    """
    x = -min(a, FARTHEST)
    shifted = x * LOG2E + TO_INTEGER
    k = shifted - TO_INTEGER
    r = (x - k * LOG2_HIGH) - k * LOG2_LOW
    p = 1.0 / 6227020800.0
    p = p * r + 1.0 / 479001600.0
    p = p * r + 1.0 / 39916800.0
    p = p * r + 1.0 / 3628800.0
    p = p * r + 1.0 / 362880.0
    p = p * r + 1.0 / 40320.0
    p = p * r + 1.0 / 5040.0
    p = p * r + 1.0 / 720.0
    p = p * r + 1.0 / 120.0
    p = p * r + 1.0 / 24.0
    p = p * r + 1.0 / 6.0
    p = p * r + 0.5
    p = p * r + 1.0
    p = p * r + 1.0
    power = (np.float64(shifted).view(np.int64) + np.int64(1023)) << np.int64(52)
    result = p * np.int64(power).view(np.float64)
    # The comparison also lets a NaN through, which min would have hidden.
    return result if a <= FARTHEST else (0.0 if a > FARTHEST else a)


@kernel(f8(f8))
def log(x):
    """Return log(x) of a positive, normal number to about 1e-15; without a branch, so that loops of it vectorise."""
    bits = np.float64(x).view(np.int64)
    # The exponent in the last bits of 2^52, which is then taken away: there is no faster way to a number from it.
    shifted = np.int64((np.uint64(bits) >> np.uint64(52)) | np.uint64(0x4330000000000000)).view(np.float64)
    mantissa = np.int64((bits & np.int64(0xFFFFFFFFFFFFF)) | (np.int64(1023) << np.int64(52))).view(np.float64)
    large = mantissa > SQRT2
    m = 0.5 * mantissa if large else mantissa
    e = (shifted - EXPONENT_ZERO) + (1.0 if large else 0.0)
    f = (m - 1.0) / (m + 1.0)
    g = f * f
    p = 1.0 / 19.0
    p = p * g + 1.0 / 17.0
    p = p * g + 1.0 / 15.0
    p = p * g + 1.0 / 13.0
    p = p * g + 1.0 / 11.0
    p = p * g + 1.0 / 9.0
    p = p * g + 1.0 / 7.0
    p = p * g + 0.2
    p = p * g + 1.0 / 3.0
    p = p * g + 1.0
    return e * LOG2 + 2.0 * f * p


@kernel(f8(f8), reassociate=False)
def cosine(x):
    """Return cos(x) to about 1e-15, for x up to some thousands; without a branch, so that loops of it vectorise.

    x = k pi + r with a whole number k, whose last bit is the sign of a Taylor polynomial in the square of r.
    """
    shifted = x * (1.0 / math.pi) + TO_INTEGER
    k = shifted - TO_INTEGER
    r = (x - k * PI_HIGH) - k * PI_LOW
    g = r * r
    p = 1.0 / 2432902008176640000.0
    p = p * g - 1.0 / 6402373705728000.0
    p = p * g + 1.0 / 20922789888000.0
    p = p * g - 1.0 / 87178291200.0
    p = p * g + 1.0 / 479001600.0
    p = p * g - 1.0 / 3628800.0
    p = p * g + 1.0 / 40320.0
    p = p * g - 1.0 / 720.0
    p = p * g + 1.0 / 24.0
    p = p * g - 0.5
    p = p * g + 1.0
    sign = np.float64(shifted).view(np.int64) << np.int64(63)
    return np.int64(np.float64(p).view(np.int64) ^ sign).view(np.float64)
