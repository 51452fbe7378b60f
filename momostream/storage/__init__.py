"""Models in files and stores: the container, blocks, the exactly-once store."""

from __future__ import annotations
