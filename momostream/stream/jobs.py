"""Work beside the rows that is too expensive for one row: tuning, splits, factors; done in steps.

Trees note what is due. The queue takes it over and does at most one step of it per learnt row: a gradient, a split or a
factor.
"""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import dataclass
from typing import Any

from momostream.gp.tuning import ResumableTuner
from momostream.stream.leaf import Leaf
from momostream.stream.nodes import Bundle
from momostream.stream.restoring import check_jobs
from momostream.stream.tree import GONE, Tree

__all__ = ["Job", "Jobs"]

log = logging.getLogger("momostream")

# Gradients that are available at the start, beside one per `tuning_interval` rows.
FREE_GRADIENTS = 100


@dataclass(eq=False)
class Job:
    """Work on one node of a tree: ``"split"``, ``"tune"``, ``"build"``; no newer tuning replaces a job that stays."""

    kind: str
    node: Any
    tree: Tree
    tuner: ResumableTuner | None = None
    stays: bool = False

    @property
    def is_over(self) -> bool:
        """Whether the leaf has left its tree, or was split meanwhile."""
        busy = next(self.tree.leaves(self.node)).busy
        return busy == GONE or (self.kind == "split" and busy != "split")


class Jobs:
    """The queue of work of some trees.

    Parameters
    ----------
    trees
        The trees.
    tuning_interval
        One gradient per this many rows.

    Attributes
    ----------
    n_gradients
        Gradients spent so far.
    """

    def __init__(self, trees: list[Tree], tuning_interval: int) -> None:
        self.trees, self.tuning_interval = trees, tuning_interval
        self.n_gradients = 0
        self._queue: deque[Job] = deque()

    @property
    def waiting(self) -> list[str]:
        """Kinds of the jobs that wait."""
        return [job.kind for job in self._queue if not job.is_over]

    def work(self, n_learnt: int) -> bool:
        """Do one step of what is due after ``n_learnt`` rows: a gradient, a split or a factor; never two.

        Returns whether there was one.
        """
        self.collect()
        queue = self._queue
        if not queue:
            return False
        while queue and queue[0].is_over:
            queue.popleft()
        # Another search may begin if the gradients so far are within the budget of the rows so far.
        may_tune = self.n_gradients < FREE_GRADIENTS + n_learnt // self.tuning_interval
        is_due = bool(queue) and (queue[0].kind != "tune" or queue[0].tuner is not None or may_tune)
        if is_due:
            self._step(queue[0], n_learnt)
        return is_due

    def finish(self, n_learnt: int) -> None:
        """Do all work that is due, whatever the gradients cost."""
        while self._queue or any(tree.due for tree in self.trees):
            self.collect(stay=True)
            if self._queue[0].is_over:
                self._queue.popleft()
            else:
                self._step(self._queue[0], n_learnt)

    def collect(self, stay: bool = False) -> None:
        """Take over the work that the trees have found due; with ``stay``, no newer job replaces it."""
        for tree in self.trees:
            while tree.due:
                self._enqueue(Job(*tree.due.popleft(), tree, stays=stay))

    def _enqueue(self, job: Job) -> None:
        """Splits go first and end the tuning of what they split; a newer tuning replaces one that has not begun."""
        gone = set(job.tree.leaves(job.node)) if job.kind == "split" else set()
        for old in [old for old in self._queue if old.kind == "tune" and old.tree is job.tree]:
            if old.node in gone:
                if old.tuner is not None:
                    # The children start from what was found so far.
                    old.node.condition(old.tuner.theta)
                self._queue.remove(old)
            elif job.kind == "tune" and old.tuner is None and not (old.stays or job.stays):
                _release(old.node)
                self._queue.remove(old)
        if job.kind == "tune":
            self._queue.append(job)
        else:
            self._queue.appendleft(job)

    def _step(self, job: Job, n_learnt: int) -> None:
        """Do a bounded part of the first job."""
        if job.kind == "split":
            what = job.tree.split(job.node)
            log.info("row %d: %s", n_learnt, what)
            self._queue.popleft()
            return
        leaf: Leaf = job.node
        if job.kind == "build":
            self._queue.popleft()
            # A factor that is lent to a prediction may be given back again.
            if leaf.own_factor is None:
                job.tree.build(leaf)
            return
        if job.tuner is None:
            job.tuner = job.tree.tuner(leaf)
        if job.tuner is not None and job.tuner.n_left:
            job.tuner.advance()
            self.n_gradients += 1
        if job.tuner is None or not job.tuner.n_left:
            self._queue.popleft()
            _release(leaf)
            if job.tuner is not None:
                leaf.condition(job.tuner.theta)
                self._queue.appendleft(Job("build", leaf, job.tree))
                log.info("row %d: tuned a leaf of %d rows", n_learnt, leaf.n_rows)

    def retune(self) -> None:
        """Put the leaves used last, at most four of each tree, up for tuning; done step by step as rows come."""
        for tree in self.trees:
            for leaf in sorted(tree.leaves(), key=lambda leaf: -leaf.touched)[:4]:
                if not leaf.busy and leaf.n_rows >= 4:
                    tree.set_busy(leaf, "tune")
                    self._queue.append(Job("tune", leaf, tree, stays=True))

    def drop_tuning(self) -> None:
        """Drop all searches: their results would overwrite hyper-parameters that are set by hand."""
        for job in [job for job in self._queue if job.kind == "tune"]:
            _release(job.node)
            self._queue.remove(job)

    def restart_tuning(self) -> None:
        """Begin all searches again, as the columns of their rows have changed."""
        for job in self._queue:
            if job.kind == "tune":
                job.tuner = None

    def clear(self) -> None:
        """Forget all jobs."""
        self._queue.clear()

    # ------------------------------------------------------------------ as plain data

    def state(self) -> list[dict[str, Any]]:
        """The jobs that wait as plain data."""
        waiting = [job for job in self._queue if not job.is_over]
        # By identity, once for each tree: some have hundreds of nodes and as many jobs.
        trees = {id(tree): number for number, tree in enumerate(self.trees)}
        nodes = {id(node): n for tree in self.trees if waiting for n, node in enumerate(tree.nodes())}
        return [
            {
                "kind": job.kind, "tree": trees[id(job.tree)], "node": nodes[id(job.node)],
                "tuner": None if job.tuner is None else job.tuner.state(), "stays": job.stays,
            }
            for job in waiting
        ]  # fmt: skip

    def restore(self, state: list[dict[str, Any]]) -> None:
        """Restore the jobs from `state`; the trees are restored before."""
        n_columns = [tree.n_inputs for tree in self.trees]
        n_parameters = [tree.covariance.n_parameters(n) for tree, n in zip(self.trees, n_columns, strict=True)]
        nodes = [tree.nodes() for tree in self.trees]
        check_jobs(state, list(map(len, nodes)), list(zip(n_columns, n_parameters, strict=True)))
        for job in state:
            tree, node = self.trees[job["tree"]], nodes[job["tree"]][job["node"]]
            if not isinstance(node, Leaf) and (job["kind"] != "split" or not isinstance(node, Bundle)):
                raise ValueError(
                    f"jobs / node is a {type(node).__name__.lower()}, which cannot wait for {job['kind']!r}"
                )
            tuner = None if job["tuner"] is None else ResumableTuner.from_state(job["tuner"], tree.covariance)
            self._queue.append(Job(job["kind"], node, tree, tuner, job["stays"]))
            if job["kind"] != "build":
                tree.set_busy(node, job["kind"])


def _release(leaf: Leaf) -> None:
    """Note that a leaf waits for no tuning; it may wait for a split, which was found due since."""
    if leaf.busy == "tune":
        leaf.busy = ""
