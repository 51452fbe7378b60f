"""Rows in, predictions out: formats, files, folders, brokers and outputs."""

from __future__ import annotations

from momostream.feeds.files import Event, Feed, FeedError, Folder, Refused, Row, Source, refusal

__all__ = ["Event", "Feed", "FeedError", "Folder", "Refused", "Row", "Source", "refusal"]
