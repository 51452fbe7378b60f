"""Mixtures of Student-t's, one per row and target: tail probabilities, densities and quantiles.

The distribution functions of some degrees of freedom are tabulated: ``log F(-sinh(u))`` over ``u >= 0``, one polynomial
of degree five per cell of width ``1 / PER_UNIT``. It is smooth and hardly bent in the tails as in the middle, so that
probabilities keep their digits everywhere. `momostream.distributions.tabulated` makes the tables.

Arrays ``w, m, s, v`` (rows, K, P) hold weights, locations, scales and degrees of freedom. A component of weight zero
only pads. A scale of zero is a lump: all of the component's probability lies at its location.
"""

from __future__ import annotations

import math

from momostream.kernels._compile import f8, i8, kernel, ro, rw, void
from momostream.kernels.scalar import log

__all__ = [
    "PER_UNIT",
    "REACH",
    "WORK",
    "mixture_log_pdf",
    "mixture_quantiles",
    "mixture_tails",
    "row_interval",
    "row_intervals",
]

# Tables: cells to one unit of u, and the last u; beyond it log F is straight, as that of a power is.
PER_UNIT, REACH = 64.0, 16.0
# The planes of a stack, as in `momostream.distributions.planes`; kernels import nothing but numpy and numba.
LOCATION, STD, SCALE, DOF, WEIGHT = range(5)
# Standardised distances are not followed beyond this; its square stays finite.
FARTHEST_SCORE = 1e100
FARTHEST_U = math.log(2.0 * FARTHEST_SCORE)
# Lines of the scratch array: weights, locations, scales and table of the components that count; below them, for each
# table, the log probability of the quantile found last, and that quantile.
WORK = 6
# Steps in a solution; bisection alone ends after fewer.
MOST_STEPS = 200
# A bracket is wide if it has this many times the scale of the heaviest component.
WIDE = 1e6


@kernel(i8(f8, ro(2)))
def _table_of(dof, dofs):
    """Number of the table for these degrees of freedom, -1 where there is none."""
    for k in range(dofs.shape[1]):
        if dofs[0, k] == dof:
            return k
    return -1


@kernel(i8(i8, i8, ro(2), ro(3), ro(3), ro(3), ro(3), rw(2)))
def _gather(i, j, dofs, w, m, s, v, work):
    """Copy the components that count into `work`; returns how many, -1 where one has no table or is not valid."""
    n = 0
    total = 0.0
    for k in range(w.shape[1]):
        weight = w[i, k, j]
        if weight == 0.0:
            continue
        table = _table_of(v[i, k, j], dofs)
        # Written so that NaN fails.
        if table < 0 or not (weight > 0.0 and s[i, k, j] >= 0.0 and math.isfinite(m[i, k, j])):
            return -1
        total += weight
        work[0, n] = weight
        work[1, n] = m[i, k, j]
        work[2, n] = s[i, k, j]
        work[3, n] = table
        n += 1
    return n if abs(total - 1.0) <= 1e-6 else -1


@kernel(f8(f8, ro(2)))
def _lower_tail(z, table):
    """Probability below ``-|z|``."""
    a = min(abs(z), FARTHEST_SCORE)
    u = PER_UNIT * log(a + math.sqrt(1.0 + a * a))
    # Not below 0: what NaN becomes as a whole number is not defined.
    cell = max(int(min(u, float(table.shape[0] - 1))), 0)
    r = u - cell
    c = table[cell]
    if u > PER_UNIT * REACH:
        end = c[0] + (c[1] + (c[2] + (c[3] + (c[4] + c[5]))))
        slope = c[1] + (2.0 * c[2] + (3.0 * c[3] + (4.0 * c[4] + 5.0 * c[5])))
        return 0.0 if math.isinf(z) else math.exp(end + slope * (r - 1.0))
    return math.exp(c[0] + r * (c[1] + r * (c[2] + r * (c[3] + r * (c[4] + r * c[5])))))


@kernel(f8(f8, ro(2)))
def _quantile(log_p, table):
    """Quantile of the standard Student-t for the log of a probability up to 0.5."""
    last = table.shape[0] - 1
    c = table[last]
    end = c[0] + (c[1] + (c[2] + (c[3] + (c[4] + c[5]))))
    if log_p <= end:
        slope = c[1] + (2.0 * c[2] + (3.0 * c[3] + (4.0 * c[4] + 5.0 * c[5])))
        u = REACH + (log_p - end) / (PER_UNIT * slope)
        return -math.sinh(min(u, FARTHEST_U))
    low = 0
    high = last + 1
    # table[low, 0] >= log_p > table[high, 0], where the entry after the last is the end of the table.
    while high - low > 1:
        middle = (low + high) // 2
        if table[middle, 0] >= log_p:
            low = middle
        else:
            high = middle
    c = table[low]
    r = min(max((log_p - c[0]) / c[1], 0.0), 1.0) if c[1] < 0.0 else 0.0
    for _ in range(3):
        g = c[0] + r * (c[1] + r * (c[2] + r * (c[3] + r * (c[4] + r * c[5])))) - log_p
        slope = c[1] + r * (2.0 * c[2] + r * (3.0 * c[3] + r * (4.0 * c[4] + r * 5.0 * c[5])))
        r = min(max(r - g / slope, 0.0), 1.0)
    return -math.sinh((low + r) / PER_UNIT)


@kernel(f8(f8, i8, i8, ro(3), rw(2)))
def _probability(x, strictly, n, tables, work):
    """Probability of at most `x`, or of less than `x`, under the first `n` components of `work`."""
    total = 0.0
    for k in range(n):
        away = x - work[1, k]
        if work[2, k] == 0.0:
            total += work[0, k] if (away > 0.0 or (away == 0.0 and strictly == 0)) else 0.0
        else:
            tail = _lower_tail(away / work[2, k], tables[int(work[3, k])])
            total += work[0, k] * (1.0 - tail if away > 0.0 else tail)
    return total


@kernel(void(f8, i8, ro(2), ro(3), rw(2), rw(1)))
def _halley(x, n, dofs, tables, work, found):
    """Set ``found`` to the distribution function at `x`, the density and its slope; lumps count in the first only."""
    F = 0.0
    f = 0.0
    slope = 0.0
    for k in range(n):
        s = work[2, k]
        away = x - work[1, k]
        if s == 0.0:
            F += work[0, k] if away >= 0.0 else 0.0
            continue
        z = min(max(away / s, -FARTHEST_SCORE), FARTHEST_SCORE)
        t = int(work[3, k])
        a = abs(z)
        root = math.sqrt(1.0 + a * a)
        u = PER_UNIT * log(a + root)
        cell = max(int(min(u, float(tables.shape[1] - 1))), 0)
        # Straight beyond the table.
        r = min(u - cell, 1.0)
        c = tables[t, cell]
        g = c[0] + r * (c[1] + r * (c[2] + r * (c[3] + r * (c[4] + r * c[5]))))
        d = c[1] + r * (2.0 * c[2] + r * (3.0 * c[3] + r * (4.0 * c[4] + r * 5.0 * c[5])))
        tail = math.exp(g + d * (u - cell - r))
        each = -work[0, k] * tail * d * PER_UNIT / (root * s)
        F += work[0, k] * (1.0 - tail if z > 0.0 else tail)
        f += each
        # Derivative of each log density: -(v + 1) z / (v + z^2) / s, with 1 / v in the table of degrees of freedom.
        slope -= each * z * (1.0 + dofs[2, t]) / ((1.0 + z * z * dofs[2, t]) * s)
    found[0] = F
    found[1] = f
    found[2] = slope


@kernel(f8(f8, i8, ro(2), ro(3), rw(2), rw(1)))
def _solve(p, n, dofs, tables, work, found):
    """Quantile of a tail probability p <= 0.5 of the first `n` components of `work`.

    Halley steps on log F, which is nearly straight in the tails, kept inside a bracket; bisection where a step leaves
    it or does not halve the one before.
    """
    log_p = math.log(p)
    low = math.inf
    high = -math.inf
    narrowest = math.inf
    leftmost = math.inf
    heaviest = 0
    x = 0.0
    for k in range(n):
        m = work[1, k]
        s = work[2, k]
        t = int(work[3, k])
        if work[4, t] != log_p:
            work[4, t] = log_p
            work[5, t] = _quantile(log_p, tables[t])
        # The quantile of a mixture lies between those of its components; wider, as these are rounded.
        each = m + s * work[5, t]
        slack = 1e-6 * s
        low = min(low, each - slack)
        high = max(high, each + slack)
        x += work[0, k] * each
        leftmost = min(leftmost, m)
        if s > 0.0:
            narrowest = min(narrowest, s)
        if work[0, k] > work[0, heaviest]:
            heaviest = k
    for k in range(n):
        # Lumps: one that holds the quantile is the answer, the others bound it.
        m = work[1, k]
        if work[2, k] == 0.0 and low <= m <= high:
            if _probability(m, 0, n, tables, work) < p:
                low = m
            elif _probability(m, 1, n, tables, work) >= p:
                high = m
            else:
                return m
    x = min(max(x, low), high)
    last = high - low
    for _ in range(MOST_STEPS):
        _halley(x, n, dofs, tables, work, found)
        F = found[0]
        f = found[1]
        if abs(F - p) <= 1e-15 * p:
            return x
        if F < p:
            low = x
        else:
            high = x
        step = math.nan
        if F > 0.0 and f > 0.0:
            gap = log_p - math.log(F)
            step = gap * F / f
            bend = 1.0 + 0.5 * gap * (found[2] / f * (F / f) - 1.0)
            step /= min(max(bend, 0.5), 2.0)
        good = low <= x + step <= high and abs(step) <= 0.5 * last
        if good:
            x += step
            last = abs(step)
        else:
            last = high - low
            if high < leftmost:
                # In logs of the distance to the components if all of them lie right of it.
                x = leftmost - math.sqrt((leftmost - low) * (leftmost - high))
            elif last > WIDE * work[2, heaviest] > 0.0:
                # In logs of the distance to the heaviest component if others lie or reach far beyond it.
                m = work[1, heaviest]
                s = work[2, heaviest]
                u = math.asinh(min(max((low - m) / s, -FARTHEST_SCORE), FARTHEST_SCORE))
                u += math.asinh(min(max((high - m) / s, -FARTHEST_SCORE), FARTHEST_SCORE))
                x = min(max(m + s * math.sinh(0.5 * u), low), high)
            else:
                x = low + 0.5 * last
        # A step of Halley's leaves an error of the order of its cube, in units of the narrowest component.
        if last <= (1e-5 if good else 1e-13) * narrowest + 4e-16 * abs(x):
            return x
    return x


@kernel(i8(ro(3), ro(3), ro(2), ro(3), ro(3), ro(3), ro(3), ro(3), rw(2), rw(1), rw(3)))
def mixture_quantiles(p, sign, dofs, tables, w, m, s, v, work, found, x):
    """Values with tail probability `p` <= 0.5 below them, or above them where `sign` is -1.

    ``p``, ``sign`` and ``x`` (levels, rows, P); `dofs` (3, tables): degrees of freedom, log norms, inverses; `work`
    (`WORK`, components and at least one for each table) and `found` (3) are scratch. Returns how many rows and targets
    were left NaN because a component has degrees of freedom without a table, or is not valid.
    """
    missed = 0
    for t in range(tables.shape[0]):
        work[4, t] = math.nan
    for i in range(x.shape[1]):
        for j in range(x.shape[2]):
            n = _gather(i, j, dofs, w, m, s, v, work)
            if n < 1:
                missed += 1
            side = 1.0
            for level in range(x.shape[0]):
                if n < 1:
                    x[level, i, j] = math.nan
                    continue
                if sign[level, i, j] != side:
                    # The upper tail is the lower tail of the mirror image.
                    side = sign[level, i, j]
                    for k in range(n):
                        work[1, k] = -work[1, k]
                x[level, i, j] = side * _solve(p[level, i, j], n, dofs, tables, work, found)
    return missed


@kernel(i8(f8, f8, ro(3), ro(2), f8, ro(2), ro(3), rw(2), rw(1), rw(2)))
def row_interval(below, above, planes, limits, gives_way, dofs, tables, work, found, ends):
    """Quantiles of one row with tail probability `below` them and `above` them, within limits, into `ends` (2, P).

    `planes` (5, K, P) are those of a stack. `limits` (4, P) and `gives_way` are those of
    `momostream.distributions.limited.limits_at`; without columns there are no limits. All else, and the number that is
    returned, as in `mixture_quantiles`.
    """
    missed = 0
    for t in range(tables.shape[0]):
        work[4, t] = math.nan
    m = planes[LOCATION : LOCATION + 1]
    for j in range(ends.shape[1]):
        n = _gather(0, j, dofs, planes[WEIGHT : WEIGHT + 1], m, planes[SCALE : SCALE + 1], planes[DOF : DOF + 1], work)
        if n < 1:
            missed += 1
            ends[0, j] = ends[1, j] = math.nan
            continue
        mean = 0.0
        for k in range(n):
            mean += work[0, k] * work[1, k]
        ends[0, j] = _solve(below, n, dofs, tables, work, found)
        # The upper tail is the lower tail of the mirror image.
        for k in range(n):
            work[1, k] = -work[1, k]
        ends[1, j] = -_solve(above, n, dofs, tables, work, found)
        if limits.shape[1] == 0:
            continue
        low, high, low_room, high_room = limits[0, j], limits[1, j], limits[2, j], limits[3, j]
        if low_room > 0.0:
            low = min(low, low + low_room + gives_way * (mean - low - low_room))
        if high_room > 0.0:
            high = max(high, high - high_room + gives_way * (mean - high + high_room))
        for end in range(2):
            ends[end, j] = min(max(ends[end, j], low), high)
    return missed


@kernel(i8(f8, f8, ro(4), ro(3), f8, ro(2), ro(3), rw(2), rw(1), rw(3)))
def row_intervals(below, above, plane_rows, limits, gives_way, dofs, tables, work, found, ends):
    """As `row_interval` for many rows: `plane_rows` (rows, 5, K, P), `limits` (rows, 4, P) and `ends` (rows, 2, P)."""
    missed = 0
    for i in range(plane_rows.shape[0]):
        missed += row_interval(
            below, above, plane_rows[i], limits[i], gives_way, dofs, tables, work, found, ends[i]
        )  # fmt: skip
    return missed


@kernel(i8(ro(3), ro(2), ro(3), ro(3), ro(3), ro(3), ro(3), rw(2), rw(3), rw(3)))
def mixture_tails(Y, dofs, tables, w, m, s, v, work, lower, upper):
    """Probabilities of at most and of more than `Y` (levels, rows, P); arguments as in `mixture_quantiles`."""
    missed = 0
    for i in range(Y.shape[1]):
        for j in range(Y.shape[2]):
            n = _gather(i, j, dofs, w, m, s, v, work)
            if n < 1:
                missed += 1
            for level in range(Y.shape[0]):
                y = Y[level, i, j]
                below = 0.0
                above = 0.0
                if n < 1 or math.isnan(y):
                    below = math.nan
                    above = math.nan
                else:
                    for k in range(n):
                        away = y - work[1, k]
                        tail = 0.0
                        if work[2, k] > 0.0:
                            tail = _lower_tail(away / work[2, k], tables[int(work[3, k])])
                        if away < 0.0:
                            below += work[0, k] * tail
                            above += work[0, k] * (1.0 - tail)
                        else:
                            below += work[0, k] * (1.0 - tail)
                            above += work[0, k] * tail
                lower[level, i, j] = below
                upper[level, i, j] = above
    return missed


@kernel(i8(ro(3), ro(2), ro(3), ro(3), ro(3), ro(3), rw(2), rw(3)))
def mixture_log_pdf(Y, dofs, w, m, s, v, work, out):
    """Log densities of `Y` (levels, rows, P), 0 where it is NaN; NaN where a component is a lump or has no table."""
    missed = 0
    for i in range(Y.shape[1]):
        for j in range(Y.shape[2]):
            n = _gather(i, j, dofs, w, m, s, v, work)
            for k in range(n):
                if work[2, k] == 0.0:
                    n = -1
                    break
                work[0, k] = math.log(work[0, k]) - math.log(work[2, k]) + dofs[1, int(work[3, k])]
            if n < 1:
                missed += 1
            for level in range(Y.shape[0]):
                y = Y[level, i, j]
                if n < 1:
                    out[level, i, j] = math.nan
                    continue
                if math.isnan(y):
                    out[level, i, j] = 0.0
                    continue
                largest = -math.inf
                for k in range(n):
                    t = int(work[3, k])
                    z = min(abs((y - work[1, k]) / work[2, k]), 1e150)
                    shape = -0.5 * z * z
                    if dofs[2, t] > 0.0:
                        shape = -0.5 * (dofs[0, t] + 1.0) * math.log1p(z * z * dofs[2, t])
                    work[4, k] = work[0, k] + shape
                    largest = max(largest, work[4, k])
                total = 0.0
                for k in range(n):
                    total += math.exp(work[4, k] - largest)
                out[level, i, j] = largest + math.log(total)
    return missed
