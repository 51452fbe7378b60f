"""The model of many steps ahead: the past, its features, regressions and their blend."""

from __future__ import annotations
