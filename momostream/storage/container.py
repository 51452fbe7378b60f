"""The file format of saved models: nested plain values and arrays, without pickle.

A file is a fixed prefix (magic bytes, format version, sizes of the two parts that follow), a JSON header, the raw
little-endian bytes of all arrays, and the SHA-256 of everything before it. The header holds the structure, in which
arrays are numbers that point into a list of data types, shapes and offsets. Nothing that is read is executed, and no
size that a header claims is allocated before the file was found to be long enough for it.

The same tree gives the same bytes, on every machine when it is not compressed.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import secrets
import shutil
import struct
import zlib
from collections.abc import Callable, Iterable
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from momostream import __version__

__all__ = [
    "FORMAT_VERSION",
    "FileFormatError",
    "assemble",
    "dumps",
    "loads",
    "read",
    "replace_file",
    "sync_folder",
    "take_apart",
    "write",
]

FORMAT_VERSION = 1

_MAGIC = b"momostrm"
# Magic, format version, bytes of the header, bytes of the arrays.
_PREFIX = struct.Struct("<8sIQQ")
_DIGEST_SIZE = hashlib.sha256().digest_size
_LONGEST = (1 << 63) - 1
# Trees that are nested deeper, or contain themselves, would end in Python's recursion limit.
_DEEPEST = 100
_DTYPES = {"|b1", "|i1", "|u1", "<i2", "<u2", "<i4", "<u4", "<i8", "<u8", "<f2", "<f4", "<f8", "<c8", "<c16"}
# Higher levels of zlib take three times as long on sensor rows for a twentieth less.
_ZLIB_LEVEL = 1
# All arrays together are at most so many times as large as their bytes, beyond those that any file may have. Packed
# bytes could become a thousand times as many.
_MOST_GROWTH, _FREE_BYTES = 8, 1 << 24

# Errors that parsing a forged header may raise.
_PARSE_ERRORS = (
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
    struct.error,
    zlib.error,
)

Chunk = bytes | memoryview
Arrays = dict[int, npt.NDArray[Any]]
# The keys that lead to a value in a tree.
Path = tuple[object, ...]


class FileFormatError(ValueError):
    """A file cannot be read: of another format, kind or version, cut off, or altered."""


def write(path: str | os.PathLike[str], kind: str, tree: object, *, compress: bool = False) -> None:
    """Write a tree to a file, all or nothing.

    The bytes go to a temporary file beside `path`, which replaces it once they are on the disk. Whatever fails, the old
    file is still there, and the temporary one is not. A new file gets the permissions that `open` would give it, a
    replaced one keeps its own.

    Parameters
    ----------
    path : path
        File to create or replace; a symbolic link is followed.
    kind : str
        Name of the thing that the tree describes, such as ``"regressor"``: `read` can ask for it.
    tree : object
        Nested dict (with str keys), list, tuple, None, bool, int, float, str, bytes and numpy arrays of booleans
        or numbers. Exactly these types: reading gives the same values to the bit.
    compress : bool
        Whether to pack arrays with zlib: about .6 of the size for ten times the time.

    Raises
    ------
    TypeError
        When the tree holds anything else; the message says where.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write(f"{folder}/model.momo", "regressor", {"rows": np.eye(2), "names": ("wind", "power")})
    ...     kind, tree = read(f"{folder}/model.momo", "regressor")
    >>> kind, tree["names"]
    ('regressor', ('wind', 'power'))
    >>> tree["rows"]
    array([[1., 0.],
           [0., 1.]])
    """
    replace_file(path, _encode(kind, tree, compress))


def replace_file(path: str | os.PathLike[str], chunks: Iterable[Chunk]) -> None:
    """Write bytes to a file, all or nothing, as `write` does."""
    path = os.path.realpath(path)
    folder = os.path.dirname(path)
    temporary = os.path.join(folder, f".momostream-{secrets.token_hex(8)}.tmp")
    try:
        # Mode "x" and not tempfile, whose files only the owner may read.
        with open(temporary, "xb") as file:
            if os.path.exists(path):
                shutil.copymode(path, temporary)
            file.writelines(chunks)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException as error:
        if os.path.exists(temporary):
            os.remove(temporary)
        if isinstance(error, OSError) and error.errno is not None:
            # The user does not know the temporary file, and errors of a full disk name no file.
            error.filename = path
        raise
    # The new name must survive a loss of power too. Some file systems cannot synchronise folders.
    with contextlib.suppress(OSError):
        sync_folder(folder)


def read(path: str | os.PathLike[str], kind: str | None = None) -> tuple[str, Any]:
    """Read a file: its kind and its tree.

    Parameters
    ----------
    path : path
        File made by `write`.
    kind : str, optional
        The kind that the file must hold.

    Returns
    -------
    kind : str
    tree : object
        Arrays are writable, in C order and in the byte order of this machine.

    Raises
    ------
    FileFormatError
        When the file is of another format, of a newer version of it or of another kind, cut off or altered.
    """
    with open(path, "rb") as file:
        data = file.read()
    try:
        return loads(data, kind)
    except FileFormatError as error:
        raise FileFormatError(f"{os.fspath(path)!r}: {error}") from error


def dumps(kind: str, tree: object, *, compress: bool = False) -> bytes:
    """Return the bytes that `write` would write.

    Examples
    --------
    >>> loads(dumps("note", {"answer": 42}))
    ('note', {'answer': 42})
    """
    return b"".join(_encode(kind, tree, compress))


def loads(data: bytes, kind: str | None = None) -> tuple[str, Any]:
    """Return kind and tree of the bytes of a file; as `read`."""
    # The digest is right, so that errors from here on mean a forged file.
    return assemble(*_split(data), kind)


def take_apart(kind: str, tree: object, *, compress: bool = False) -> tuple[bytes, list[Chunk]]:
    """Return the header of the file that `write` would write, and the bytes of each array.

    For callers that keep the parts elsewhere than in a file, and check there that they are complete. Arrays are not
    copied: use them before they change.

    Examples
    --------
    >>> header, arrays = take_apart("note", {"rows": np.arange(3.0), "answer": 42})
    >>> [len(array) for array in arrays]
    [24]
    >>> assemble(header, b"".join(arrays))
    ('note', {'rows': array([0., 1., 2.]), 'answer': 42})
    """
    if type(kind) is not str:
        raise TypeError(f"kind must be a str, got {type(kind).__name__}")
    writer = _Writer(compress)
    structure = writer.encode(tree, ())
    fields = {"kind": kind, "written_by": f"momostream {__version__}", "tree": structure, "arrays": writer.entries}
    return json.dumps(fields, separators=(",", ":"), allow_nan=False).encode("ascii"), writer.payload


def assemble(header: bytes, payload: Chunk, kind: str | None = None) -> tuple[str, Any]:
    """Return kind and tree from a header and the bytes of all arrays, one after the other; as `read`."""
    payload = memoryview(payload)
    try:
        fields = json.loads(header, parse_constant=_reject)
        found, entries = fields["kind"], fields["arrays"]
        if type(found) is not str or type(entries) is not list:
            raise TypeError("kind or arrays")
        if kind is not None and found != kind:
            raise FileFormatError(f"holds a {found}, expected a {kind}")
        return found, _decode(fields["tree"], _unpack_arrays(entries, payload))
    except FileFormatError:
        raise
    except _PARSE_ERRORS as error:
        raise FileFormatError("the header cannot be read") from error


# -----------------------------------------------------------------------------------------------------------
# The frame


def _encode(kind: str, tree: object, compress: bool) -> list[Chunk]:
    """Return the pieces of a file, in order."""
    header, arrays = take_apart(kind, tree, compress=compress)
    prefix = _PREFIX.pack(_MAGIC, FORMAT_VERSION, len(header), sum(map(len, arrays)))
    chunks: list[Chunk] = [prefix, header, *arrays]
    digest = hashlib.sha256()
    for chunk in chunks:
        digest.update(chunk)
    return [*chunks, digest.digest()]


def _split(data: bytes) -> tuple[bytes, memoryview]:
    """Return header and arrays of a file, after checking prefix, sizes and checksum."""
    if not data or not data.startswith(_MAGIC[: len(data)]):
        raise FileFormatError("not a momostream file")
    if len(data) < _PREFIX.size:
        raise FileFormatError(f"truncated: {len(data)} bytes are left")
    _, version, header_size, payload_size = _PREFIX.unpack_from(data)
    if version > FORMAT_VERSION:
        raise FileFormatError(f"written in format {version}, newer than {FORMAT_VERSION}: update momostream")
    end = _PREFIX.size + header_size
    size = end + payload_size + _DIGEST_SIZE
    if len(data) < size:
        raise FileFormatError(f"truncated: {len(data)} of {size} bytes are left")
    view = memoryview(data)
    if len(data) > size or hashlib.sha256(view[:-_DIGEST_SIZE]).digest() != view[-_DIGEST_SIZE:]:
        raise FileFormatError("altered: the checksum does not match")
    return data[_PREFIX.size : end], view[end:-_DIGEST_SIZE]


def sync_folder(folder: str) -> None:
    """Write the names of a folder to the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# -----------------------------------------------------------------------------------------------------------
# The structure. None, bool, str, list, finite floats and integers of 64 bits are the same in JSON; any other value is
# an object with one key, which names its type.


class _Writer:
    """Turns a tree into JSON values and collects the bytes of its arrays."""

    def __init__(self, compress: bool) -> None:
        self.compress = compress
        self.entries: list[dict[str, object]] = []
        self.payload: list[Chunk] = []
        self.size = 0

    def encode(self, value: object, path: Path) -> object:
        """Return the entry of `value` in the header; `path` are the keys that lead to it."""
        if len(path) > _DEEPEST:
            raise TypeError(f"nested deeper than {_DEEPEST} levels, or inside itself, {_where(path[:3])} / ...")
        # Subclasses would come back as something else: np.float64 is a float, named tuples are tuples.
        kind = type(value)
        encode = self._ENCODERS.get(kind)
        if encode is None:
            raise TypeError(f"cannot save a {kind.__module__}.{kind.__qualname__} {_where(path)}")
        return encode(self, value, path)

    def _same(self, value: object, path: Path) -> object:
        return value

    def _int(self, value: int, path: Path) -> object:
        # In hexadecimal, because Python limits how many decimal digits it reads.
        return value if abs(value) <= _LONGEST else {"int": hex(value)}

    def _float(self, value: float, path: Path) -> object:
        return value if math.isfinite(value) else {"float": struct.pack("<d", value).hex()}

    def _list(self, value: list[object] | tuple[object, ...], path: Path) -> list[object]:
        return [self.encode(item, (*path, i)) for i, item in enumerate(value)]

    def _tuple(self, value: tuple[object, ...], path: Path) -> object:
        return {"tuple": self._list(value, path)}

    def _dict(self, value: dict[object, object], path: Path) -> object:
        for key in value:
            if type(key) is not str:
                raise TypeError(f"the keys of a dict must be str, got {key!r} {_where(path)}")
        return {"dict": {key: self.encode(item, (*path, key)) for key, item in value.items()}}

    def _bytes(self, value: bytes, path: Path) -> object:
        return {"bytes": self._add(np.frombuffer(value, dtype=np.uint8))}

    def _array(self, value: npt.NDArray[Any], path: Path) -> object:
        if value.dtype.newbyteorder("<").str not in _DTYPES:
            raise TypeError(f"cannot save an array of {value.dtype} {_where(path)}")
        return {"array": self._add(value)}

    _ENCODERS: ClassVar[dict[type, Callable[[Any, Any, Path], object]]] = {
        type(None): _same,
        bool: _same,
        str: _same,
        int: _int,
        float: _float,
        list: _list,
        tuple: _tuple,
        dict: _dict,
        bytes: _bytes,
        np.ndarray: _array,
        np.memmap: _array,
    }

    def _add(self, array: npt.NDArray[Any]) -> int:
        little = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
        chunk: Chunk = little.reshape(-1).view(np.uint8).data
        if self.compress:
            packed = zlib.compress(chunk, _ZLIB_LEVEL)
            # Fewer bytes than the shape asks for mean that they are compressed.
            chunk = packed if len(packed) < len(chunk) else chunk
        self.entries.append(
            {"dtype": little.dtype.str, "shape": list(array.shape), "offset": self.size, "size": len(chunk)}
        )
        self.payload.append(chunk)
        self.size += len(chunk)
        return len(self.entries) - 1


def _where(path: Path) -> str:
    return f"at {' / '.join(map(repr, path))}" if path else "at the top"


def _decode(value: object, arrays: Arrays) -> object:
    """Return the value that the header describes. Each array is used once only."""
    if isinstance(value, list):
        return [_decode(item, arrays) for item in value]
    if isinstance(value, dict):
        ((tag, content),) = value.items()
        return _DECODERS[tag](content, arrays)
    return value


_DECODERS: dict[str, Callable[[Any, Arrays], object]] = {
    "tuple": lambda content, arrays: tuple(_decode(item, arrays) for item in content),
    "dict": lambda content, arrays: {key: _decode(item, arrays) for key, item in content.items()},
    "bytes": lambda content, arrays: arrays.pop(content).tobytes(),
    "array": lambda content, arrays: arrays.pop(content),
    "int": lambda content, arrays: int(content, 16),
    "float": lambda content, arrays: struct.unpack("<d", bytes.fromhex(content))[0],
}


def _unpack_arrays(entries: list[dict[str, Any]], payload: memoryview) -> Arrays:
    arrays: Arrays = {}
    end, left = 0, _MOST_GROWTH * len(payload) + _FREE_BYTES
    for index, entry in enumerate(entries):
        # One after the other: many arrays of the same bytes would make a small file large.
        if entry["offset"] != end:
            raise ValueError(f"array {entry} overlaps others")
        end += entry["size"]
        arrays[index] = _unpack_array(entry, payload[entry["offset"] : end], left)
        left -= arrays[index].nbytes
    return arrays


def _unpack_array(entry: dict[str, Any], stored: Chunk, most: int) -> npt.NDArray[Any]:
    shape, size = entry["shape"], entry["size"]
    if entry["dtype"] not in _DTYPES or any(type(n) is not int or n < 0 for n in (*shape, size)):
        raise ValueError(f"array {entry} has an unknown type or shape")
    dtype = np.dtype(entry["dtype"])
    n_bytes = math.prod(shape) * dtype.itemsize
    if len(stored) != size or n_bytes < size:
        raise ValueError(f"array {entry} does not have the size of its shape")
    if n_bytes > most:
        raise FileFormatError(f"an array of shape {shape} is much larger than the file")
    if size < n_bytes:
        stored = zlib.decompressobj().decompress(stored, n_bytes)
    flat = np.frombuffer(stored, dtype=np.uint8)
    # Bytes other than 0 and 1 are not valid booleans in numpy, whatever their dtype.
    values = flat.astype(np.bool_) if dtype == np.bool_ else flat.view(dtype).astype(dtype.newbyteorder("="))
    return values.reshape(shape)


def _reject(constant: str) -> None:
    raise ValueError(f"{constant} in the header")
