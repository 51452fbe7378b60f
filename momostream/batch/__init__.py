"""The model of a table: regions under a circuit that is learnt from all rows at once."""

from __future__ import annotations
