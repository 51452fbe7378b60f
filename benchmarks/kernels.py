"""Kernels: how long they take beside BLAS and LAPACK called from Python.

    python -m benchmarks.kernels [--quick]

Medians of CPU time of one thread. Both sides run by turns in the same loop, so that a slower spell of the
machine hits both. The other side does the same work with the best calls of numpy and scipy that we know of:

* append: covariance column in numpy, ``dtrsv``, products for mean and variance, a row written into a square
  factor;
* solve: ``dtrsv`` on a square factor;
* drop: there is no deletion in LAPACK, so the smaller matrix (at hand) is factorised by ``dpotrf``, and
  ``dtrsm`` solves for the targets;
* rebuild: Gram matrix by ``cdist``, ``dpotrf``, ``dtrsm``;
* many: ``dtrsm`` with 256 right-hand sides, on a square factor.

Ours start from the packed factor each time. A full run takes about 2 minutes, and writes the table to
``benchmarks/results/kernels.md``.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.linalg import blas, lapack
from scipy.spatial.distance import cdist
from threadpoolctl import threadpool_limits

from benchmarks.harness import about, origin, table, write_results
from momostream.gp import linalg
from momostream.kernels.cholesky import append_row, drop_oldest, project, rebuild, solve_lower
from momostream.kernels.covariance import MATERN32, gram

SIZES = (64, 128, 256, 512, 1024)
D, P, RIGHT = 8, 6, 256
KIND, LINEAR, NOISE = MATERN32, 0.0, 0.01


@dataclass
class Task:
    """Two ways to do the same work on fresh data; `calls` repetitions lie between two looks at the clock."""

    name: str
    ours: Callable[[int], object]
    theirs: Callable[[int], object]
    prepare: Callable[[], object]
    calls: int
    target: float | None


class Problem:
    """A factorised region of `n` rows, packed and square."""

    def __init__(self, n: int) -> None:
        rng = np.random.default_rng(n)
        self.n = n
        self.S = rng.normal(size=(n + 1, D))
        self.Y = rng.normal(size=(n + 1, P))
        self.K = np.empty((n, n))
        gram(KIND, LINEAR, NOISE, self.S[:n], self.K)
        self.L = np.zeros((n + 1) * (n + 2) // 2)
        self.Z = np.zeros((n + 1, P))
        self.v, self.mean = np.empty(n + 1), np.empty(P)
        rebuild(KIND, LINEAR, NOISE, 0, n, self.Y, self.v, self.mean, self.S, self.Z, self.L)
        # One more row of room; the transposed view of a C-ordered factor is what Fortran wants.
        self.square = np.zeros((n + 1, n + 1))
        self.square[:n, :n] = np.linalg.cholesky(self.K)
        self.factor = np.ascontiguousarray(self.square[:n, :n])
        self.b = rng.normal(size=n)
        self.B = rng.normal(size=(n, RIGHT))

    def tasks(self) -> list[Task]:
        """List what is timed at this size."""
        small = max(1, 2048 // self.n)
        return [
            self.append(small),
            self.solve(small),
            self.drop(max(1, 512 // self.n)),
            self.rebuild(),
            self.many(),
        ]

    def append(self, calls: int) -> Task:
        """Project one point and append it."""
        n, s, y = self.n, self.S[self.n], self.Y[self.n]
        S, Z, square, factor = self.S, self.Z, self.square, self.factor

        def ours(_: int) -> None:
            variance = project(KIND, LINEAR, S, self.L, Z, n, s, self.v, self.mean)
            pivot = math.sqrt(max(NOISE + variance, NOISE))
            append_row(n, s, self.v, pivot, y - self.mean, S, Z, self.L)

        def theirs(_: int) -> None:
            difference = S[:n] - s
            a = np.sqrt(3.0 * np.einsum("ij,ij->i", difference, difference))
            v = blas.dtrsv(factor.T, (1.0 + a) * np.exp(-a), lower=0, trans=1, overwrite_x=1)
            pivot = math.sqrt(max(NOISE + 1.0 - v @ v, NOISE))
            square[n, :n] = v
            square[n, n] = pivot
            Z[n] = (y - v @ Z[:n]) / pivot

        return Task("append", ours, theirs, lambda: None, calls, None)

    def solve(self, calls: int) -> Task:
        """Solve for one right-hand side, in place."""
        n, L, upper = self.n, self.L, self.factor.T
        left, right = np.empty((calls, n)), np.empty((calls, n))
        ours_b, theirs_b = list(left), list(right)

        def prepare() -> None:
            left[:] = self.b
            right[:] = self.b

        def ours(i: int) -> None:
            solve_lower(L, n, ours_b[i])

        def theirs(i: int) -> None:
            blas.dtrsv(upper, theirs_b[i], lower=0, trans=1, overwrite_x=1)

        return Task("solve", ours, theirs, prepare, calls, 1.0 if n <= 256 else 1.2)

    def drop(self, calls: int) -> Task:
        """Delete the oldest row."""
        n, work = self.n, np.empty(2 * self.n + P)
        states = [(self.S.copy(), self.Z.copy(), self.L.copy()) for _ in range(calls)]
        smaller = [np.ascontiguousarray(self.K[1:, 1:]) for _ in range(calls)]
        targets = [np.ascontiguousarray(self.Y[1:n]) for _ in range(calls)]

        def prepare() -> None:
            for S, Z, L in states:
                S[:], Z[:], L[:] = self.S, self.Z, self.L
            for K, Y in zip(smaller, targets, strict=True):
                K[:], Y[:] = self.K[1:, 1:], self.Y[1:n]

        def ours(i: int) -> None:
            S, Z, L = states[i]
            drop_oldest(n, S, Z, L, work)

        def theirs(i: int) -> None:
            factor, _ = lapack.dpotrf(smaller[i].T, lower=0, clean=0, overwrite_a=1)
            blas.dtrsm(1.0, factor, targets[i].T, side=1, lower=0, overwrite_b=1)

        return Task("drop", ours, theirs, prepare, calls, None)

    def rebuild(self) -> Task:
        """Factorise all rows afresh."""
        n, S, Y = self.n, np.ascontiguousarray(self.S[: self.n]), self.Y[: self.n].copy()
        L, Z = np.empty(n * (n + 1) // 2), np.empty((n, P))

        def ours(_: int) -> None:
            rebuild(KIND, LINEAR, NOISE, 0, n, Y, self.v, self.mean, S, Z, L)

        def theirs(_: int) -> None:
            a = cdist(S, S)
            a *= math.sqrt(3.0)
            K = np.exp(-a)
            a += 1.0
            K *= a
            K.flat[:: n + 1] += NOISE
            factor, _ = lapack.dpotrf(K.T, lower=0, clean=0, overwrite_a=1)
            blas.dtrsm(1.0, factor, Y.T, side=1, lower=0)

        return Task("rebuild", ours, theirs, lambda: None, 1, None)

    def many(self) -> Task:
        """Solve for many right-hand sides, in place."""
        n, upper = self.n, self.factor.T
        left, right = np.empty_like(self.B), np.empty_like(self.B)

        def prepare() -> None:
            left[:] = self.B
            right[:] = self.B

        def ours(_: int) -> None:
            linalg.solve_many(self.L, n, left, overwrite=True)

        def theirs(_: int) -> None:
            blas.dtrsm(1.0, upper, right.T, side=1, lower=0, overwrite_b=1)

        return Task("many", ours, theirs, prepare, 1, 1.5)

    def rebuild_equals_appending(self) -> bool:
        """Say whether a rebuilt factor is the appended one, bit for bit."""
        n = self.n
        S, Z, L = np.zeros((n, D)), np.zeros((n, P)), np.zeros(n * (n + 1) // 2)
        for i in range(n):
            variance = project(KIND, LINEAR, S, L, Z, i, self.S[i], self.v, self.mean)
            pivot = math.sqrt(max(NOISE + variance, NOISE))
            append_row(i, self.S[i], self.v, pivot, self.Y[i] - self.mean, S, Z, L)
        again_Z, again_L = np.zeros_like(Z), np.zeros_like(L)
        rebuild(KIND, LINEAR, NOISE, 0, n, self.Y, self.v, self.mean, S, again_Z, again_L)
        return np.array_equal(L, again_L) and np.array_equal(Z, again_Z)


def cpu_nanoseconds(function: Callable[[int], object], calls: int) -> float:
    """CPU time of one call, averaged over `calls` calls in a row."""
    start = time.thread_time_ns()
    for i in range(calls):
        function(i)
    return (time.thread_time_ns() - start) / calls


def compare(task: Task, repetitions: int) -> tuple[float, float]:
    """Median CPU microseconds of ours and theirs, by turns."""
    times = np.empty((repetitions + 3, 2))
    for i in range(len(times)):
        # The order alternates: the second finds the data of the first still in the cache.
        order = (0, 1) if i % 2 == 0 else (1, 0)
        task.prepare()
        for side in order:
            times[i, side] = cpu_nanoseconds((task.ours, task.theirs)[side], task.calls)
    ours, theirs = np.median(times[3:], axis=0) / 1e3
    return float(ours), float(theirs)


def verdict(passed: bool) -> str:
    """Spell a comparison with a target."""
    return "PASS" if passed else "MISS"


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description="Time the kernels against BLAS and LAPACK.")
    parser.add_argument("--quick", action="store_true", help="two sizes, few repetitions, nothing written")
    quick = parser.parse_args().quick
    rows, equal = [], []
    with threadpool_limits(1):
        for n in (64, 256) if quick else SIZES:
            problem = Problem(n)
            equal.append(problem.rebuild_equals_appending())
            for task in problem.tasks():
                budget = 20 if quick else 1000
                repetitions = max(9, min(budget, budget * 1024 // (n * n // 64)))
                ours, theirs = compare(task, repetitions)
                ratio = ours / theirs
                target = "" if task.target is None else f"{task.target:.1f}"
                mark = "" if task.target is None else verdict(ratio <= task.target)
                rows.append([task.name, str(n), f"{ours:.1f}", f"{theirs:.1f}", f"{ratio:.2f}", target, mark])
    parts = [
        "# Kernels against BLAS and LAPACK",
        origin("kernels", [about()]),
        f"{D} inputs, {P} targets, {RIGHT} right-hand sides for `many`. Medians of CPU time, microseconds.",
        table(["work", "n", "ours", "theirs", "ratio", "target", ""], rows),
        f"Rebuilding gives what appending gave, bit for bit: {verdict(all(equal))}.",
    ]
    text = "\n\n".join(parts)
    print(text)
    if not quick:
        write_results("kernels", text)


if __name__ == "__main__":
    main()
