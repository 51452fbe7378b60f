"""Runs on a cluster."""

from __future__ import annotations
