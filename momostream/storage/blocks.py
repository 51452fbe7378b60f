"""A model taken apart into blocks of bytes, so that only changed blocks need be written.

A model is the header and the arrays of `momostream.storage.container`, each cut into blocks of a fixed size. Where the
digests of the blocks that were written last are known, `Parts.changes` says which blocks to write and which to remove:
rows that were learnt long ago are not written again. The keeper of the blocks, a store or the state of a cluster, joins
them again in the order of their positions.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from momostream.storage import container

if TYPE_CHECKING:
    from momostream.storage.models import SavedModel

    Model: TypeAlias = SavedModel

__all__ = ["POSITION_BITS", "Changes", "Packed", "Parts", "digest", "packed", "unpacked"]

# The position of a block within its model is one number: part (0 is the header) and block.
_PART_BITS = _BLOCK_BITS = 20
POSITION_BITS = _PART_BITS + _BLOCK_BITS
#: Largest size of a block.
MOST_BYTES = 1 << 20
# First byte of a block in a store, and share of words (eight bytes) that are zero from which these are left out.
_PLAIN, _COMPRESSED, _SPARSE, SPARSE = b"\0", b"\1", b"\2", 0.1
_WORD = np.dtype("<u8")
# A header is text, which unpacks to a few times its size; forged bytes could become a thousand times as many.
MOST_GROWTH = 200


def digest(data: bytes) -> bytes:
    """Eight bytes that stand for these bytes."""
    # Not a CRC: among the blocks of years, two of 32 bits that agree by chance would keep an old block.
    return blake2b(data, digest_size=8).digest()


def packed(block: bytes) -> bytes:
    """A block as a store holds it: without its zeros if it has many, as arrays with room for more have.

    Examples
    --------
    >>> len(packed(bytes(4096))) < 100
    True
    >>> unpacked(packed(bytes(4096))) == bytes(4096), unpacked(packed(b"abc"))
    (True, b'abc')
    """
    n_words = len(block) // _WORD.itemsize
    words = np.frombuffer(block, _WORD, n_words)
    is_kept = words != 0
    # Numbers that are not zero hardly shrink: zlib took five times as long as all else that a commit does.
    if n_words - np.count_nonzero(is_kept) < max(1, SPARSE * n_words):
        return _PLAIN + block
    rest = block[n_words * _WORD.itemsize :]
    return _SPARSE + n_words.to_bytes(4, "little") + np.packbits(is_kept).tobytes() + words[is_kept].tobytes() + rest


def unpacked(block: bytes) -> bytes:
    """The block that `packed` was given."""
    kind = block[:1]
    if kind == _PLAIN:
        return block[1:]
    if kind == _SPARSE:
        return _with_zeros(block)
    if kind != _COMPRESSED:
        raise container.FileFormatError("a block begins with an unknown byte")
    # Whatever a corrupted block says, it is not larger than a block may be.
    return zlib.decompressobj().decompress(block[1:], MOST_BYTES)


def _with_zeros(block: bytes) -> bytes:
    """A block with its zeros again."""
    n_words, start = int.from_bytes(block[1:5], "little"), 5
    n_bits = -(-n_words // 8)
    if n_words * _WORD.itemsize > MOST_BYTES or len(block) < start + n_bits:
        raise container.FileFormatError("a block does not have the length that it says")
    is_kept = np.unpackbits(np.frombuffer(block, np.uint8, n_bits, start), count=n_words).astype(bool)
    start, n_kept = start + n_bits, int(np.count_nonzero(is_kept))
    end = start + n_kept * _WORD.itemsize
    if len(block) < end:
        raise container.FileFormatError("a block does not have the length that it says")
    words = np.zeros(n_words, _WORD)
    words[is_kept] = np.frombuffer(block, _WORD, n_kept, start)
    return words.tobytes() + block[end:]


class Changes(NamedTuple):
    """Changes of a model: blocks to write by position, positions to remove, and the new digests of all blocks."""

    write: dict[int, bytes]
    remove: list[int]
    digests: dict[int, bytes]


class Parts(NamedTuple):
    """A model taken apart: kind, rows learnt, header, and the bytes of each array.

    Examples
    --------
    >>> from momostream import MOMoGPRegressor
    >>> model = MOMoGPRegressor(seed=0)
    >>> for t in range(100):
    ...     model.learn_one({"x": t % 7}, {"y": t % 5})
    >>> first = Parts.of(model).changes({}, 4096)
    >>> Parts.join(first.write).predict_one({"x": 3}) == model.predict_one({"x": 3})
    True
    >>> model.learn_one({"x": 1}, {"y": 2})
    >>> then = Parts.of(model).changes(first.digests, 4096)
    >>> 0 < len(then.write) < len(first.write)
    True
    """

    kind: str
    n_rows: int
    chunks: list[bytes]

    @classmethod
    def of(cls, model: Model) -> Parts:
        """Take a model apart; it may continue to learn."""
        # Within the lock, and as copies: rows that are learnt meanwhile must not be half in it.
        with model._lock:
            from momostream.storage import models

            kind, tree = models.to_tree(model)
            header, arrays = container.take_apart(kind, tree)
            # The header is text, and the part that changes with every row.
            return cls(kind, model.n_rows, [zlib.compress(header, 1), *map(bytes, arrays)])

    def changes(self, before: Mapping[int, bytes], block_bytes: int) -> Changes:
        """The changes, given the digests of the blocks that were written last."""
        write: dict[int, bytes] = {}
        digests: dict[int, bytes] = {}
        for position, block in self._blocks(block_bytes):
            digests[position] = now = digest(block)
            if before.get(position) != now:
                write[position] = block
        return Changes(write, [position for position in before if position not in digests], digests)

    def _blocks(self, size: int) -> Iterator[tuple[int, bytes]]:
        if len(self.chunks) >= 1 << _PART_BITS or max(map(len, self.chunks)) > size << _BLOCK_BITS:
            raise ValueError(f"a model is too large for blocks of {size} bytes: use a larger block_bytes")
        for part, chunk in enumerate(self.chunks):
            for block, at in enumerate(range(0, len(chunk), size)):
                yield part << _BLOCK_BITS | block, chunk[at : at + size]

    def model(self) -> Model:
        """The model, which continues as the original would have."""
        header, *arrays = self.chunks
        return _model(header, b"".join(arrays))

    @staticmethod
    def join(blocks: Mapping[int, bytes]) -> Model:
        """The model of these blocks, all of them, by position."""
        positions, first = sorted(blocks), 1 << _BLOCK_BITS
        header = b"".join(blocks[position] for position in positions if position < first)
        return _model(header, b"".join(blocks[position] for position in positions if position >= first))


class Packed:
    """A model at rest: everything except its factors, compressed.

    Examples
    --------
    >>> from momostream import MOMoGPRegressor
    >>> model = MOMoGPRegressor(seed=0)
    >>> for t in range(100):
    ...     model.learn_one({"x": t % 7}, {"y": t % 5})
    >>> packed = Packed(model)
    >>> packed.nbytes < model.nbytes
    True
    >>> packed.model().predict_one({"x": 3}) == model.predict_one({"x": 3})
    True
    """

    def __init__(self, model: Model) -> None:
        parts = Parts.of(model)
        self._header_bytes = len(parts.chunks[0])
        # Higher levels take three times as long for a twentieth less.
        self._bytes = zlib.compress(b"".join(parts.chunks), 1)

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return sys.getsizeof(self._bytes)

    def model(self) -> Model:
        """The model, which continues as the original would have."""
        whole, n = zlib.decompress(self._bytes), self._header_bytes
        return _model(whole[:n], memoryview(whole)[n:])


def _model(header: bytes, payload: bytes | memoryview) -> Model:
    # Here: a store can be read without the models and their compiled code.
    from momostream.storage import models

    unpacker = zlib.decompressobj()
    text = unpacker.decompress(header, MOST_GROWTH * len(header))
    if not unpacker.eof:
        raise container.FileFormatError("the header is cut off, or unpacks to much more than it should")
    return models.from_tree(*container.assemble(text, payload))
