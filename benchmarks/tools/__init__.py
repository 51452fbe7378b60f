"""What the questions are answered with: rivals, scores and reports, named after the question that they serve."""

from __future__ import annotations
