"""Feeds of bytes in memory, and what is read from them."""

from __future__ import annotations

import csv
import io

import pytest

from momostream.feeds import Feed, FeedError


class Pipe(io.RawIOBase):
    """Bytes that come in small pieces and never again."""

    def __init__(self, data, piece=7):
        self._data, self._piece = io.BytesIO(data), piece

    def readable(self):
        return True

    def readinto(self, buffer):
        chunk = self._data.read(min(len(buffer), self._piece))
        buffer[: len(chunk)] = chunk
        return len(chunk)


def as_bytes(data):
    return data.encode() if isinstance(data, str) else data


def read(data, *args, **options):
    with Feed(io.BytesIO(as_bytes(data)), *args, **options) as feed:
        return list(feed)


def values(data, *args, **options):
    return [row.values for row in read(data, *args, **options)]


def times(data, **options):
    return [row.time for row in read(data, time="t", **options)]


def skipping(data, *args, **options):
    """Numbers of the good rows, and the messages of the bad ones."""
    messages = []
    with Feed(io.BytesIO(as_bytes(data)), *args, bad_rows="skip", on_bad=messages.append, **options) as feed:
        numbers = [row.number for row in feed]
        assert feed.n_bad == len(messages)
    return numbers, messages


def error_of(data, *args, **options):
    with pytest.raises(FeedError) as caught:
        read(data, *args, **options)
    return str(caught.value)


def write_csv(header, rows, **dialect):
    text = io.StringIO()
    writer = csv.writer(text, **dialect)
    writer.writerow(header)
    writer.writerows(rows)
    return text.getvalue().encode()
