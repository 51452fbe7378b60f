"""The model of rows: leaves under circuits that grow, lags, and the stack that weighs them."""

from __future__ import annotations
