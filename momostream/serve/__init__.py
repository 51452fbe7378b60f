"""Watch feeds live: one process that runs feeds into stores and serves a page and an HTTP interface."""

from __future__ import annotations
