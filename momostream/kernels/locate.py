"""Forecasts of all experts in one array, and what makes them smooth over the steps."""

from __future__ import annotations

import math

from momostream.kernels._compile import i8, kernel, ro, rw, void, whole

__all__ = ["begin_experts", "end_experts", "expect_wide", "smooth_fans"]


@kernel(void(ro(1), ro(1), ro(3), rw(1), rw(2)))
def expect_wide(f, largest, W, cut, expected):
    """Set `cut` (d), the features `f` cut at `largest`, and the changes `expected` (K, Q) of them under `W` (K, d, Q).

    O(K d Q).
    """
    d = f.shape[0]
    Q = expected.shape[1]
    for i in range(d):
        cut[i] = min(max(f[i], -largest[i]), largest[i])
    for k in range(W.shape[0]):
        out = expected[k]
        weights = W[k]
        for q in range(Q):
            out[q] = 0.0
        i = 0
        # Four at a time: the sums are loaded and stored a quarter as often.
        while i + 4 <= d:
            f0 = cut[i]
            f1 = cut[i + 1]
            f2 = cut[i + 2]
            f3 = cut[i + 3]
            w0 = weights[i]
            w1 = weights[i + 1]
            w2 = weights[i + 2]
            w3 = weights[i + 3]
            for q in range(Q):
                out[q] += f0 * w0[q] + f1 * w1[q] + f2 * w2[q] + f3 * w3[q]
            i += 4
        while i < d:
            f0 = cut[i]
            w0 = weights[i]
            for q in range(Q):
                out[q] += f0 * w0[q]
            i += 1


@kernel(void(ro(3), i8, i8, whole, rw(3)))
def begin_experts(past, first, now, back, located):
    """Set the first two of the forecasts `located` (K, H, P): the last values, and those `back` (H) rows ago.

    `past` (rows, 4, P) are rows as in `past_append`; rows before `first` do not exist, the newest stands for them.
    """
    for h in range(located.shape[1]):
        at = now - back[h] if now - back[h] >= first else now
        for p in range(located.shape[2]):
            located[0, h, p] = past[now, 0, p]
            located[1, h, p] = past[at, 0, p]


@kernel(void(ro(1), ro(2), i8, ro(2), i8, ro(1), ro(1), rw(3)))
def end_experts(values, expected, at_wide, stds, n_plain, lowest, highest, located):
    """Turn changes into forecasts and keep all forecasts `located` (K, H, P) between `lowest` and `highest` (P).

    The changes `expected` (n, H P) of wide regressions go to `at_wide` and after it. The last forecasts come in as the
    changes that circuits expect, which are none where their deviations `stds` (m, H P) are infinite. The first
    `n_plain` of them are changes of the `values` (P), the others are added to the last of the wide regressions.
    """
    K = located.shape[0]
    n_wide = expected.shape[0]
    first = K - stds.shape[0]
    for h in range(located.shape[1]):
        for p in range(located.shape[2]):
            q = h * located.shape[2] + p
            for k in range(n_wide):
                located[at_wide + k, h, p] = values[p] + expected[k, q]
            for k in range(stds.shape[0]):
                base = values[p] if k < n_plain else located[at_wide + n_wide - 1, h, p]
                located[first + k, h, p] = base + (located[first + k, h, p] if math.isfinite(stds[k, q]) else 0.0)
    for k in range(K):
        for h in range(located.shape[1]):
            own = located[k, h]
            for p in range(located.shape[2]):
                # Written so that NaN stays.
                value = lowest[p] if own[p] < lowest[p] else own[p]
                own[p] = highest[p] if value > highest[p] else value


@kernel(void(ro(3), ro(3), rw(1), rw(3)))
def smooth_fans(matrices, rough, line, smooth):
    """Set `smooth` (n, H, P): forecasts `rough` (n, H, P) times the matrix (P, H, H) of each series."""
    H = rough.shape[1]
    for i in range(rough.shape[0]):
        for p in range(rough.shape[2]):
            for h in range(H):
                line[h] = 0.0
            for g in range(H):
                value = rough[i, g, p]
                row = matrices[p, g]
                for h in range(H):
                    line[h] += value * row[h]
            for h in range(H):
                smooth[i, h, p] = line[h]
