"""What a prediction is: marginals, mixtures, joint distributions, predictions and forecasts."""

from __future__ import annotations
