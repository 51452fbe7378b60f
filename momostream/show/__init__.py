"""Views for people: outlines of circuits, plots, reports, the terminal."""

from __future__ import annotations
