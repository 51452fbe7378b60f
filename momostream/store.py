"""The store of the models of a fleet: a public door to `momostream.storage.store`."""

from __future__ import annotations

from momostream.storage.store import LINES, DeadLetter, Key, Output, Position, Store, StoreError, plain_key

__all__ = ["LINES", "DeadLetter", "Key", "Output", "Position", "Store", "StoreError", "plain_key"]
