"""Views of models and runs: outlines of circuits, plots, reports, the terminal."""

from __future__ import annotations
