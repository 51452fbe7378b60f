"""The model of normal rows: how far a row departs from the past, from its other columns, and for how long."""

from __future__ import annotations
