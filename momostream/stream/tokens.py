"""Names of predictions: a row is learnt by the token of its prediction, as long as that is still there."""

from __future__ import annotations

from itertools import count

__all__ = ["NO_TOKEN", "StaleTokenError", "next_token"]

# The token of no prediction, and a source of tokens that no other prediction of this process bears.
NO_TOKEN = 0
next_token = count(1).__next__


class StaleTokenError(RuntimeError):
    """The prediction of a row that was to be learnt is no longer there: predict the row again first."""

    def __init__(self) -> None:
        super().__init__("the row was not predicted last, or the model has changed since: predict the row again first")
