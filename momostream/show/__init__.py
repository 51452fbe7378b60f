"""What people see: outlines, drawings, plots, reports, the terminal."""

from __future__ import annotations
