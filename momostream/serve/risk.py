"""Questions about the future, answered from joint samples of forecasts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from momostream.distributions.forecast import Forecast

__all__ = ["MOST_MACHINES", "risk"]

N_PATHS = 2000
#: Machines of one question.
MOST_MACHINES = 200


def risk(
    forecasts: Sequence[Forecast], target: str, below: float | None, above: float | None, n_steps: int, seed: int = 0
) -> dict[str, Any]:
    """Probability that a target, or its sum over machines, falls below or rises above a value within some steps.

    Forecasts of one machine are joint over its steps. Machines are forecast one by one, and how they depend on each
    other is not known: for a sum, the answer is given for machines that are independent and for machines whose paths
    move together, and the truth usually lies between.

    Parameters
    ----------
    forecasts
        One for each machine.
    target
        Its name.
    below, above
        The value; one of them is None.
    n_steps
        Steps that are looked at.

    Returns
    -------
    dict
        ``probability``: of one machine, or of independent ones; ``together``: of machines that move together, None for
        one machine; ``by_step``: the probability of having crossed the value by each step.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> from momostream.distributions.planes import DOF, LOCATION
    >>> planes = np.ones((5, 1, 2, 1))
    >>> planes[LOCATION, 0], planes[DOF] = [[5.0], [6.0]], np.inf
    >>> joint = SimpleNamespace(planes=planes, between_steps=np.eye(2), between_series=np.ones((1, 1)))
    >>> answer = risk([Forecast(joint, ["power"])], "power", below=5.0, above=None, n_steps=2)
    >>> round(answer["probability"], 1), [round(p, 1) for p in answer["by_step"]]
    (0.6, [0.5, 0.6])
    """
    independent = _crossed(_sum(forecasts, target, n_steps, range(seed, seed + len(forecasts))), below, above)
    together = None
    if len(forecasts) > 1:
        same = _crossed(_sum(forecasts, target, n_steps, [seed] * len(forecasts)), below, above)
        together = float(same[:, -1].mean())
    by_step = independent.mean(axis=0)
    return {"probability": float(by_step[-1]), "together": together, "by_step": by_step.tolist(), "paths": N_PATHS}


def _sum(
    forecasts: Sequence[Forecast], target: str, n_steps: int, seeds: Sequence[int]
) -> NDArray[np.float64]:  # fmt: skip
    """Paths of the sum, shape ``(N_PATHS, n_steps)``."""
    total = np.zeros((N_PATHS, n_steps))
    for forecast, seed in zip(forecasts, seeds, strict=True):
        paths = forecast.sample(N_PATHS, seed=seed)
        total += paths[:, :n_steps, forecast.series.index(target)]
    return total


def _crossed(paths: NDArray[np.float64], below: float | None, above: float | None) -> NDArray[np.bool_]:
    """Whether each path has crossed the value by each step."""
    crosses = paths < below if below is not None else paths > np.float64(above if above is not None else np.nan)
    return np.maximum.accumulate(crosses, axis=1)
