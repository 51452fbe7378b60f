"""Blocks as a store holds them."""

from __future__ import annotations

import zlib

import numpy as np
import pytest

from momostream.storage.blocks import packed, unpacked
from momostream.storage.container import FileFormatError


@pytest.mark.parametrize("share", [0.0, 0.05, 0.2, 0.6, 1.0])
@pytest.mark.parametrize("n_bytes", [0, 1, 7, 8, 9, 100, 4089, 4096])
def test_blocks_come_back_and_zeros_take_no_room(share, n_bytes):
    rng = np.random.default_rng(n_bytes)
    words = rng.normal(size=n_bytes // 8 + 1)
    words[rng.random(len(words)) < share] = 0.0
    block = words.tobytes()[:n_bytes]
    found = packed(block)
    assert unpacked(found) == block
    n_zeros = sum(block[at : at + 8] == bytes(8) for at in range(0, n_bytes - 7, 8))
    # A byte says what it is, four how many words there are, and a bit of each word whether it is zero.
    assert len(found) <= n_bytes + 1 and (n_zeros < 60 or len(found) <= n_bytes - 8 * n_zeros + n_bytes // 64 + 6)


def test_blocks_that_were_compressed_are_read():
    assert unpacked(b"\1" + zlib.compress(bytes(500), 1)) == bytes(500)


@pytest.mark.parametrize("changed", [b"\2", b"\2\xff\xff\xff\xff", b"\2\x10\0\0\0\xff\xff12345678", b"\3abc", b""])
def test_corrupted_blocks_are_refused(changed):
    with pytest.raises(FileFormatError, match="block"):
        unpacked(changed)
