"""Rows in, predictions out: formats, files, folders, brokers and outputs.

`formats` reads the cells of a row; `source` is the protocol of a feed. `files`, `parquet` and `folders` are feeds on
disk, made of `lines`, `records` and `detection`; `mqtt`, `kafka` and `opcua` are feeds from the network, made of
`messages` and their `contents`, where `gather` makes rows of single values; `outputs` writes files, and `outlets` are
brokers and databases that get lines from a store.
"""

from __future__ import annotations

from momostream.feeds.files import Feed
from momostream.feeds.folders import Folder
from momostream.feeds.formats import Rejected, Row
from momostream.feeds.source import Event, FeedError, Source, rejection

__all__ = ["Event", "Feed", "FeedError", "Folder", "Refused", "Rejected", "Row", "Source", "refusal", "rejection"]

# Earlier names, for one version.
Refused = Rejected
refusal = rejection
