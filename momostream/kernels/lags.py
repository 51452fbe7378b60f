"""Linear regression on lags, the pattern that its errors repeat, and running moments."""

from __future__ import annotations

import math

from momostream.kernels._compile import f8, i8, kernel, ro, rw, void
from momostream.kernels.covariance import mirror_lower
from momostream.kernels.dense import factorise_dense, invert_dense
from momostream.kernels.scalar import NOT_POSITIVE_DEFINITE, NU0, OK, dot

__all__ = [
    "LEVEL_PENALTY",
    "add_up_lags",
    "find_season",
    "lag_features",
    "learn_lags",
    "learn_lags_rows",
    "learn_linear",
    "learn_moments",
    "fill_missing",
    "learn_pattern",
    "predict_lags",
    "predict_lags_rows",
    "predict_linear",
    "rebase_lags",
    "remember",
    "short_width",
    "smooth_by_season",
    "solve_lags",
]

# The penalty on the level of a regression, in rows.
LEVEL_PENALTY = 1e-3
# A feature that varies by less than this part of its distance from its origin counts as constant.
LEAST_STD = 1e-7
# A feature is never measured in units below this part of its centre, which would be round-off.
LEAST_UNIT = 1e-12
# The deviation of an expert that stands still, as a part of the least change so far: a reading of that resolution.
READING = 0.125
# The pattern: errors are cut at this many deviations; weight of the newest season in it; memory of the correlations of
# errors and of the regressions on the pattern; penalty of these, in rows.
ERROR_CUT, NEWEST_SEASON, PATTERN_FORGETTING, PATTERN_PENALTY = 4.0, 0.15, 0.999, 10.0
# A season has at least this many rows, was seen this many times, and its correlation exceeds the ones around it by
# this much a row and by this many times the root of the rows. A shorter season is preferred if it has this part of the
# highest.
SHORTEST, TIMES_SEEN, AROUND, LEAST_EXCESS, TIMES_ROOT, SHORTER = 4, 3.0, 3, 0.1, 5.0, 0.6
# Rows between two looks for a season, and looks that must agree before it is changed.
LOOK_EVERY, LOOKS = 16, 3.0
# Entries of `clock`: season in rows (0 is none), the one that was found last, how often in a row, rows seen, their
# discounted number.
SEASON, FOUND, AGREED, SEEN, MASS = range(5)
# Rows of `residuals` after squares and masses of three predictions: least change of a target so far, infinite before
# the first, whether its last value was a repetition, and for how many rows it has been missing.
FINEST, REPEATED, MISSED = 6, 7, 8
# A missing target is taken to have been as predicted, for so many rows. The error of the first reading after a gap is
# that of several rows: it is cut at this many deviations.
MOST_FILLED, GAP_CUT = 60.0, 2.0


@kernel(i8(ro(1), ro(1)))
def short_width(x, y):
    """Features of the short regression: the level, inputs, their change, and the last targets."""
    return 1 + 2 * x.shape[0] + y.shape[0]


@kernel(void(ro(1), ro(2), ro(2), ro(2), f8, rw(1)))
def lag_features(x, past_x, past_y, units, clip, f):
    """Set `f` to 1 and the standardised features of a row.  O(D + P).

    In this order: `x`, its change, the last `y`, and then two older changes of `y` and one of `x`. `past_x` (2, D)
    and `past_y` (3, P) hold the newest row first; `units` (2, width - 1) centre and unit of each feature. Features are
    cut at `clip` units: one jump must not throw the prediction of the next row.
    """
    D = x.shape[0]
    P = past_y.shape[1]
    f[0] = 1.0
    at = 1
    for k in range(D):
        f[at + k] = x[k]
        f[at + D + k] = x[k] - past_x[0, k]
    at += 2 * D
    for p in range(P):
        f[at + p] = past_y[0, p]
        f[at + P + p] = past_y[0, p] - past_y[1, p]
        f[at + 2 * P + p] = past_y[1, p] - past_y[2, p]
    at += 3 * P
    for k in range(D):
        f[at + k] = past_x[0, k] - past_x[1, k]
    for j in range(units.shape[1]):
        u = (f[j + 1] - units[0, j]) / units[1, j]
        # A target without a past has no lags yet: they count as their mean.
        f[j + 1] = 0.0 if math.isnan(u) else min(max(u, -clip), clip)


@kernel(f8(i8, ro(1), ro(2), ro(2), rw(1), rw(1)))
def predict_linear(width, f, P, B, gain, mean):
    """Set ``gain = P f`` and ``mean = B' f`` over the first `width` features; returns ``1 + f' P f``."""
    head = f[:width]
    total = 0.0
    for i in range(width):
        gain[i] = dot(P[i, :width], head)
        total += f[i] * gain[i]
    for p in range(mean.shape[0]):
        mean[p] = 0.0
    for i in range(width):
        for p in range(mean.shape[0]):
            mean[p] += B[i, p] * f[i]
    # Round-off must not make the variance of a row smaller than its noise.
    return 1.0 + max(total, 0.0)


@kernel(void(i8, f8, f8, ro(1), ro(1), rw(2), rw(2)))
def learn_linear(width, forgetting, c, gain, error, P, B):
    """Recursive least squares: move the weights `B` by the `error` of a row and update `P`.  O(width^2).

    `gain` and `c` come from `predict_linear`.
    """
    below = forgetting + c - 1.0
    # A product takes a quarter of the time of a division.
    grown = 1.0 / forgetting
    for i in range(width):
        share = gain[i] / below
        for p in range(error.shape[0]):
            B[i, p] += share * error[p]
        row = P[i]
        for j in range(width):
            row[j] = (row[j] - share * gain[j]) * grown


@kernel(f8(f8, ro(1), f8, f8))
def _pattern_shift(mass, sums, smooth, newest):
    """What the pattern adds to a prediction: a ridge regression of the error on two features, from its `sums` (6)."""
    if mass <= 0.0 or sums[5] <= 0.0:
        return 0.0
    ridge = PATTERN_PENALTY * sums[5] / mass
    a = sums[0] + ridge
    b = sums[1]
    c = sums[2] + ridge
    determinant = a * c - b * b
    if not determinant > 0.0:
        return 0.0
    return ((c * sums[3] - b * sums[4]) * smooth + (a * sums[4] - b * sums[3]) * newest) / determinant


@kernel(
    void(
        ro(1), ro(2), ro(2), ro(2), f8, i8, ro(3), ro(3), ro(2), ro(3), ro(1), ro(3), rw(1), rw(2), rw(2), rw(1),
        rw(2), rw(2),
    )
)  # fmt: skip
def predict_lags(
    x, past_x, past_y, units, clip, short, P, B, residuals, pattern, clock, fits, f, gains, means, c, location, std
):
    """Predict the change of `y` by a linear regression on all features, by one on the `short` first ones, and as zero.

    `P` (2, width, width) and `B` (2, width, targets) belong to the regressions. `residuals` (9, targets) holds the
    discounted squares of the errors of the three predictions, their mass, and what is named by `FINEST` and after it.
    `pattern` (2, targets, rows), `clock` (5) and `fits` (2, targets, 6) hold what the errors repeat from season to
    season, which is added to both regressions.
    Sets `location` and `std` (4, targets), the last of an expert that has a deviation only where the last value was a
    repetition, and what `learn_lags` needs: `f`, `gains` (2, width), `c` (2), and `means` (4, targets), the changes
    that the regressions expect, without and with the pattern. O(width^2).
    """
    lag_features(x, past_x, past_y, units, clip, f)
    width = f.shape[0]
    c[0] = predict_linear(width, f, P[0], B[0], gains[0], means[0])
    c[1] = predict_linear(short, f, P[1], B[1], gains[1], means[1])
    season = int(clock[SEASON])
    before = (season - int(clock[SEEN])) % pattern.shape[2]
    for p in range(location.shape[1]):
        last = past_y[0, p]
        for k in range(2):
            means[2 + k, p] = means[k, p]
            if season > 0:
                means[2 + k, p] += _pattern_shift(clock[MASS], fits[k, p], pattern[1, p, before], pattern[0, p, before])
        for k in range(3):
            location[k, p] = last + means[2 + k, p] if k < 2 else last
            mass = residuals[3 + k, p]
            # Few residuals say little about the next one: wider by as much as a Student-t of so few is.
            square = residuals[k, p] / mass * (1.0 + NU0 / mass) if mass > 0.0 else math.inf
            std[k, p] = math.sqrt(square * c[k] if k < 2 else square)
        location[3, p] = last
        std[3, p] = READING * residuals[FINEST, p] if residuals[REPEATED, p] > 0.0 else math.inf


@kernel(void(ro(1), ro(2), ro(2), rw(2), rw(1)))
def fill_missing(y, means, past_y, residuals, filled):
    """Set `filled` to the targets `y`, missing ones to what the best of the three predictions expected."""
    for p in range(y.shape[0]):
        filled[p] = y[p]
        if math.isnan(y[p]) and residuals[MISSED, p] < MOST_FILLED:
            change = 0.0
            least = residuals[2, p]
            for k in range(2):
                if residuals[k, p] < least:
                    least = residuals[k, p]
                    change = means[2 + k, p]
            filled[p] = past_y[0, p] + change


@kernel(f8(f8, f8, f8))
def _cut_error(error, squares, mass):
    """An error cut at `GAP_CUT` deviations of the errors before, if there were any: a column may leave its rest."""
    most = GAP_CUT * math.sqrt(squares / mass) if squares > 0.0 else math.inf
    return min(max(error, -most), most)


@kernel(void(ro(1), ro(1), rw(2), rw(2)))
def remember(x, y, past_x, past_y):
    """Put a row in front of the last ones; a missing target keeps its last value.

    A target that is seen for the first time (its past is NaN) is taken to have had this value before.
    """
    for k in range(x.shape[0]):
        past_x[1, k] = past_x[0, k]
        past_x[0, k] = x[k]
    for p in range(y.shape[0]):
        if math.isnan(past_y[0, p]):
            past_y[2, p] = past_y[1, p] = past_y[0, p] = y[p]
        else:
            past_y[2, p] = past_y[1, p]
            past_y[1, p] = past_y[0, p]
            if not math.isnan(y[p]):
                past_y[0, p] = y[p]


@kernel(
    void(
        ro(2), ro(2), ro(2), ro(2), f8, i8, ro(3), ro(3), ro(2), ro(3), ro(1), ro(3), rw(1), rw(2), rw(2), rw(1),
        rw(3), rw(3),
    )
)  # fmt: skip
def predict_lags_rows(
    X, past_x, past_y, units, clip, short, P, B, residuals, pattern, clock, fits, f, gains, means, c, location, std
):
    """As `predict_lags` for many rows; `location` and `std` are (rows, 4, targets)."""
    for i in range(X.shape[0]):
        predict_lags(
            X[i], past_x, past_y, units, clip, short, P, B, residuals, pattern, clock, fits, f, gains, means, c,
            location[i], std[i],
        )  # fmt: skip


@kernel(i8(ro(1), f8, i8))
def find_season(echo, mass, present):
    """Return the season in the correlations `echo` of errors, 0 if there is none: `present`, if it is still good.

    `echo` (longest + 1) holds discounted sums over rows, whose discounted number is `mass`, of the product of an error
    and the one so many rows before it, in units of their variance. The season is the shortest of the high peaks.
    """
    top = min(echo.shape[0] - 1 - AROUND, int(mass / TIMES_SEEN))
    if top <= SHORTEST:
        return 0
    highest = 0.0
    for s in range(SHORTEST, top + 1):
        highest = max(highest, echo[s] - 0.5 * (echo[s - AROUND] + echo[s + AROUND]))
    # Sums over unrelated errors grow with the root of their number.
    if highest <= max(LEAST_EXCESS * mass, TIMES_ROOT * math.sqrt(mass)):
        return 0
    if present > 0 and echo[present] - 0.5 * (echo[present - AROUND] + echo[present + AROUND]) > SHORTER * highest:
        return present
    found = 0
    for s in range(SHORTEST, top + 1):
        if echo[s] - 0.5 * (echo[s - AROUND] + echo[s + AROUND]) > SHORTER * highest:
            # The first peak, not its slope.
            if found == 0 or (s == found + 1 and echo[s] > echo[found]):
                found = s
    return found


@kernel(void(i8, i8, rw(3)))
def smooth_by_season(season, seen, pattern):
    """Smooth the errors in `pattern` over the rows a season apart, from the oldest row on; `seen` rows were seen."""
    rows = pattern.shape[2]
    n = min(seen, rows)
    for age in range(n, 0, -1):
        at = (age - seen) % rows
        before = (at + season) % rows
        for p in range(pattern.shape[1]):
            pattern[1, p, at] = pattern[0, p, at]
            if age + season <= n:
                smooth = pattern[1, p, before]
                pattern[1, p, at] = smooth + NEWEST_SEASON * (pattern[0, p, at] - smooth)


@kernel(void(rw(1), ro(1), rw(3)))
def _look_for_season(clock, echo, pattern):
    """Change the season where several looks in a row agree on another one."""
    present = int(clock[SEASON])
    found = find_season(echo, clock[MASS], present)
    if found == 0:
        return
    if found == present:
        clock[AGREED] = 0.0
        return
    clock[AGREED] = clock[AGREED] + 1.0 if found == int(clock[FOUND]) else 1.0
    clock[FOUND] = found
    if clock[AGREED] >= LOOKS:
        clock[SEASON], clock[AGREED] = found, 0.0
        smooth_by_season(found, int(clock[SEEN]), pattern)


@kernel(void(f8, ro(1), rw(1)))
def _add_multiple(factor, source, sums):
    """Add a multiple of the first entries of `source` to `sums`."""
    for i in range(sums.shape[0]):
        sums[i] += factor * source[i]


@kernel(void(ro(1), ro(2), ro(2), rw(1), rw(3), rw(1), rw(3)))
def learn_pattern(change, means, residuals, echo, pattern, clock, fits):
    """Learn from the errors of both regressions what they repeat from season to season.  O(longest * targets).

    The errors of the first one, cut, are the pattern; a missing one counts as zero. Rows lie in a ring, the newest
    first.
    """
    rows = pattern.shape[2]
    longest = echo.shape[0] - 1
    targets = change.shape[0]
    at = -int(clock[SEEN]) % rows
    season = int(clock[SEASON])
    before = (at + season) % rows
    ahead = min(longest, rows - 1 - at)
    for s in range(1, longest + 1):
        echo[s] *= PATTERN_FORGETTING
    for p in range(targets):
        missing = math.isnan(change[p])
        error = 0.0 if missing else change[p] - means[0, p]
        mass = residuals[3, p]
        most = ERROR_CUT * math.sqrt(residuals[0, p] / mass) if mass > SHORTEST else 0.0
        error = min(max(error, -most), most)
        pattern[0, p, at] = error
        pattern[1, p, at] = error
        # Correlations with the errors before, in units of the variances, over all targets. Rows that were not seen yet
        # are zero.
        if error != 0.0:
            weight = error * mass / (residuals[0, p] * targets)
            _add_multiple(weight, pattern[0, p, at + 1 :], echo[1 : ahead + 1])
            _add_multiple(weight, pattern[0, p], echo[ahead + 1 :])
        if season > 0:
            smooth = pattern[1, p, before]
            newest = pattern[0, p, before]
            pattern[1, p, at] = smooth + NEWEST_SEASON * (error - smooth)
            if missing:
                continue
            for k in range(2):
                error = change[p] - means[k, p]
                sums = fits[k, p]
                sums[0] = PATTERN_FORGETTING * sums[0] + smooth * smooth
                sums[1] = PATTERN_FORGETTING * sums[1] + smooth * newest
                sums[2] = PATTERN_FORGETTING * sums[2] + newest * newest
                sums[3] = PATTERN_FORGETTING * sums[3] + smooth * error
                sums[4] = PATTERN_FORGETTING * sums[4] + newest * error
                sums[5] = PATTERN_FORGETTING * sums[5] + error * error
    clock[SEEN] += 1.0
    clock[MASS] = PATTERN_FORGETTING * clock[MASS] + 1.0
    if int(clock[SEEN]) % LOOK_EVERY == 0:
        _look_for_season(clock, echo, pattern)


@kernel(
    void(
        ro(1), ro(1), f8, f8, i8, ro(2), ro(2), ro(1), ro(1), rw(2), rw(2), rw(1), rw(3), rw(3), rw(2), rw(1), rw(3),
        rw(1), rw(3), rw(1), rw(1),
    )
)  # fmt: skip
def learn_lags(
    x, y, forgetting, discount, short, gains, means, c, f, past_x, past_y, error, P, B, residuals, echo, pattern,
    clock, fits, features, change,
):  # fmt: skip
    """Learn the targets `y` of the row that `predict_lags` was last called for, NaN where missing.  O(width^2).

    Keeps the row as the newest of the past, and its `features` and the `change` of each target for later.
    """
    for j in range(f.shape[0]):
        features[j] = f[j]
    for p in range(y.shape[0]):
        change[p] = y[p] - past_y[0, p]
        if not math.isnan(change[p]):
            if change[p] != 0.0:
                residuals[FINEST, p] = min(residuals[FINEST, p], abs(change[p]))
            residuals[REPEATED, p] = 1.0 if change[p] == 0.0 and residuals[FINEST, p] < math.inf else 0.0
    fill_missing(y, means, past_y, residuals, error)
    remember(x, error, past_x, past_y)
    for p in range(change.shape[0]):
        known = not math.isnan(change[p])
        if known and residuals[MISSED, p] > 0.0:
            change[p] = means[0, p] + _cut_error(change[p] - means[0, p], residuals[0, p], residuals[3, p])
        residuals[MISSED, p] = 0.0 if known else residuals[MISSED, p] + 1.0
    for k in range(3):
        for p in range(change.shape[0]):
            if math.isnan(change[p]):
                error[p] = 0.0
                continue
            away = change[p] - means[2 + k, p] if k < 2 else change[p]
            square = away * away
            residuals[k, p] = discount * residuals[k, p] + (square / c[k] if k < 2 else square)
            residuals[3 + k, p] = discount * residuals[3 + k, p] + 1.0
            # The regressions learn on their own: the pattern is what they leave.
            error[p] = change[p] - means[k, p] if k < 2 else 0.0
        if k < 2:
            width = short if k == 1 else P.shape[1]
            learn_linear(width, forgetting, c[k], gains[k], error, P[k], B[k])
    learn_pattern(change, means, residuals, echo, pattern, clock, fits)


@kernel(
    void(
        ro(2), ro(2), f8, f8, f8, i8, rw(2), rw(2), ro(2), rw(1), rw(2), rw(2), rw(1), rw(1),
        rw(3), rw(3), rw(2), rw(1), rw(3), rw(1), rw(3), rw(2), rw(2), rw(4),
    )
)  # fmt: skip
def learn_lags_rows(
    X, Y, clip, forgetting, discount, short, past_x, past_y, units, f, gains, means, c, error,
    P, B, residuals, echo, pattern, clock, fits, features, changes, plane_rows,
):  # fmt: skip
    """Predict and learn rows one after the other.

    `plane_rows` (rows, 2, 4, targets) gets locations and standard deviations.

    `features` and `changes` get the rows that `Autoregression` adds up later.
    """
    for i in range(X.shape[0]):
        predict_lags(
            X[i], past_x, past_y, units, clip, short, P, B, residuals, pattern, clock, fits, f, gains, means, c,
            plane_rows[i, 0], plane_rows[i, 1],
        )  # fmt: skip
        learn_lags(
            X[i], Y[i], forgetting, discount, short, gains, means, c, f, past_x, past_y, error, P, B, residuals,
            echo, pattern, clock, fits, features[i], changes[i],
        )  # fmt: skip


@kernel(void(i8, f8, ro(2), rw(2), rw(2), rw(2), rw(2)))
def add_up_lags(n, forgetting, B, features, changes, A, C):
    """Add the first `n` rows of `features` and `changes`, which are overwritten, to the moments.  O(n width^2).

    A missing change is taken to have been as predicted by the weights `B`: it moves no weight. A row with anything that
    is not finite does not count. `A` (width, width) are moments of the features, `C` (width, targets) of features and
    changes.
    """
    width = A.shape[0]
    for i in range(n):
        f = features[i]
        t = changes[i]
        finite = True
        for p in range(t.shape[0]):
            if math.isnan(t[p]):
                t[p] = 0.0
                for k in range(width):
                    t[p] += f[k] * B[k, p]
            finite = finite and abs(t[p]) < math.inf
        for k in range(width):
            finite = finite and abs(f[k]) < math.inf
        if not finite:
            f[:] = 0.0
            t[:] = 0.0
    faded = forgetting**n
    for k in range(width):
        for j in range(k + 1):
            A[k, j] *= faded
        for p in range(C.shape[1]):
            C[k, p] *= faded
    i = 0
    while i < n:
        # Four rows at a time: most of the time goes into reading and writing the moments.
        rows = min(4, n - i)
        f0 = features[i]
        f1 = features[min(i + 1, n - 1)]
        f2 = features[min(i + 2, n - 1)]
        f3 = features[min(i + 3, n - 1)]
        w0 = forgetting ** (n - 1 - i)
        w1 = forgetting ** (n - 2 - i) if rows > 1 else 0.0
        w2 = forgetting ** (n - 3 - i) if rows > 2 else 0.0
        w3 = forgetting ** (n - 4 - i) if rows > 3 else 0.0
        for k in range(width):
            a0 = w0 * f0[k]
            a1 = w1 * f1[k]
            a2 = w2 * f2[k]
            a3 = w3 * f3[k]
            row = A[k]
            for j in range(k + 1):
                row[j] += a0 * f0[j] + a1 * f1[j] + a2 * f2[j] + a3 * f3[j]
        for r in range(rows):
            decay = forgetting ** (n - 1 - i - r)
            for k in range(width):
                share = decay * features[i + r, k]
                for p in range(C.shape[1]):
                    C[k, p] += share * changes[i + r, p]
        i += 4
    mirror_lower(A)


@kernel(void(rw(1), rw(1), rw(2), rw(2), rw(2)))
def rebase_lags(shift, size, A, C, units):
    """Express the moments in features of mean zero and standard deviation one.  O(width^2).

    `units` (2, width - 1) are centre and unit of each feature; `shift` and `size` (width) are scratch.
    """
    width = A.shape[0]
    mass = A[0, 0]
    if mass == 0.0:
        return
    shift[0], size[0] = 0.0, 1.0
    for k in range(1, width):
        mean = A[0, k] / mass
        whole = math.sqrt(A[k, k] / mass)
        # One row has no standard deviation; its distance from the first one is a guess.
        std = whole if mass < 1.5 else math.sqrt(max(whole * whole - mean * mean, 0.0))
        centre = units[0, k - 1] + units[1, k - 1] * mean
        unit = units[1, k - 1] * std
        if not (std > LEAST_STD * whole and unit > LEAST_UNIT * abs(centre) and unit > 1e-150):
            std = 1.0
        shift[k], size[k] = mean, std
        units[0, k - 1] = centre
        units[1, k - 1] *= std
    # One row lies at its own mean: round-off would be all that is left, and large in the new units.
    rest = 0.0 if mass < 1.5 else 1.0
    for k in range(width - 1, 0, -1):
        for p in range(C.shape[1]):
            C[k, p] = rest * (C[k, p] - shift[k] * C[0, p]) / size[k]
        for j in range(k, 0, -1):
            A[k, j] = rest * (A[k, j] - shift[k] * A[0, j]) / (size[k] * size[j])
        A[k, 0] = 0.0
    mirror_lower(A)


@kernel(i8(i8, f8, ro(2), ro(2), rw(1), rw(2), rw(2), rw(2)))
def solve_lags(width, penalty, A, C, scratch, work, P, B):
    """Set inverse `P` and weights `B` of a regression on the first `width` features.  O(width^3).

    `penalty` is that of each weight but the level. `work` (width, width) and `scratch` (width) are overwritten. Returns
    `OK`, or `NOT_POSITIVE_DEFINITE` if the moments are not finite.
    """
    status = NOT_POSITIVE_DEFINITE
    for attempt in range(2):
        if status == OK:
            break
        for i in range(width):
            for j in range(i + 1):
                work[i, j] = A[i, j]
            work[i, i] += LEVEL_PENALTY if i == 0 else penalty
            if attempt == 1:
                # For features that follow from each other to the last digit.
                work[i, i] += 1e-6 * A[i, i]
        status = factorise_dense(work)
    if status != OK:
        return status
    invert_dense(work, scratch)
    for i in range(width):
        # The units of a feature that has not varied are not known: it has no weight until it varies.
        still = A[i, i] <= LEAST_STD * LEAST_STD * A[0, 0]
        for j in range(i + 1):
            entry = work[i, j]
            if not abs(entry) < math.inf:
                return NOT_POSITIVE_DEFINITE
            if still or A[j, j] <= LEAST_STD * LEAST_STD * A[0, 0]:
                entry = 0.0
            P[i, j] = entry
            P[j, i] = entry
    for i in range(width):
        for p in range(C.shape[1]):
            B[i, p] = 0.0
        for k in range(width):
            for p in range(C.shape[1]):
                B[i, p] += P[i, k] * C[k, p]
    return OK


@kernel(void(ro(2), rw(2)))
def learn_moments(rows, moments):
    """Update what is known of each column, `moments` (6, columns); NaN is skipped.

    Count, mean and sum of squared deviations; the last value and the rows since then; the sum of the products of
    successive deviations.
    """
    for i in range(rows.shape[0]):
        row = rows[i]
        for k in range(row.shape[0]):
            if math.isnan(row[k]):
                moments[4, k] += 1.0
                continue
            moments[0, k] += 1.0
            away = row[k] - moments[1, k]
            if moments[4, k] == 0.0 and moments[0, k] > 1.0:
                moments[5, k] += away * (moments[3, k] - moments[1, k])
            moments[1, k] += away / moments[0, k]
            moments[2, k] += away * (row[k] - moments[1, k])
            moments[3, k] = row[k]
            moments[4, k] = 0.0
