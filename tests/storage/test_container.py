"""Saved files: what goes in comes out to the bit, and no damaged file gets past the reader."""

from __future__ import annotations

import hashlib
import json
import math
import os
import stat
import struct
import subprocess
import sys
import zlib
from collections import OrderedDict, namedtuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from momostream import __version__
from momostream.storage import container
from momostream.storage.container import FileFormatError

DTYPES = ["?", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8", "c8", "c16"]
PREFIX = struct.Struct("<8sIQQ")


def same(a, b):
    """Equality that tells 1 from 1.0 from True, 0.0 from -0.0, and one NaN from another."""
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, float):
        return struct.pack("<d", a) == struct.pack("<d", b)
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    return a == b


def round_trip(tree, **options):
    return container.loads(container.dumps("thing", tree, **options))[1]


def forge(header, payload=b""):
    """A file with a valid checksum around any header."""
    if not isinstance(header, bytes):
        header = json.dumps(header).encode()
    body = PREFIX.pack(b"momostrm", 1, len(header), len(payload)) + header + payload
    return body + hashlib.sha256(body).digest()


def small_tree():
    return {
        "experts": [{"theta": np.array([0.5, -0.25]), "seen": 3}, None],
        "names": ("wind", "power"),
        "state": b"\x00\xff",
        "limit": math.inf,
        "mask": np.array([[True], [False]]),
    }


# -----------------------------------------------------------------------------------------------------------
# What goes in comes out

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=True, allow_infinity=True)
    | st.text(st.characters(), max_size=5)
    | st.binary(max_size=5)
)
arrays = hnp.arrays(st.sampled_from(DTYPES), hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3))
trees = st.recursive(
    scalars | arrays,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=12,
)


@settings(max_examples=200)
@given(tree=trees, compress=st.booleans())
def test_round_trip(tree, compress):
    assert same(round_trip(tree, compress=compress), tree)


@pytest.mark.parametrize(
    "value",
    [
        2**63 - 1,
        2**63,
        -(2**63) - 1,
        [-(1 << 17_000)],  # more digits than Python reads by default
        0.1 + 0.2,
        5e-324,
        -0.0,
        -math.inf,
        struct.unpack("<d", bytes.fromhex("efbeaddeefbef8ff"))[0],  # a NaN with a sign and a payload
        "\ud800 \0 \u2028 é",
        {"tuple": [1], "array": 0, "": {}},  # the format's own words
        [(), [], {}, ((),)],
        [1, 1.0, True, None],
    ],
)
def test_values_keep_type_and_bits(value):
    assert same(round_trip(value), value)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1, 1), (4, 3)])
def test_arrays_keep_dtype_shape_and_bits(dtype, shape):
    rng = np.random.default_rng(0)
    array = np.asarray(rng.integers(-100, 100, size=shape)).astype(dtype)
    for form in (array, np.array(array, order="F"), array.astype(array.dtype.newbyteorder(">"))):
        back = round_trip(form)
        assert same(back, array)
        assert back.flags.c_contiguous and back.flags.writeable and back.flags.aligned
        assert back.dtype.isnative


def test_views_and_memory_maps(tmp_path):
    array = np.arange(12.0).reshape(3, 4)
    assert same(round_trip(array[::-1, ::2]), np.ascontiguousarray(array[::-1, ::2]))
    np.save(tmp_path / "a.npy", array)
    mapped = np.load(tmp_path / "a.npy", mmap_mode="r")
    assert same(round_trip(mapped), array)


def test_arrays_of_one_file_do_not_share_memory():
    a, b = round_trip([np.zeros(3), np.zeros(3)])
    a[:] = 1.0
    assert not b.any()


def test_compressed_files_are_smaller_and_the_same_inside():
    tree = {"rows": np.zeros((300, 4)), "noise": np.frombuffer(np.random.default_rng(0).bytes(80)), "n": 2}
    small, large = container.dumps("x", tree, compress=True), container.dumps("x", tree)
    assert len(small) < 1000 < 9600 < len(large)
    assert same(container.loads(small), container.loads(large))


@pytest.mark.parametrize("compress", [False, True])
def test_same_tree_same_bytes(compress):
    first, second = (container.dumps("x", small_tree(), compress=compress) for _ in range(2))
    assert first == second


def test_layout_is_frozen():
    """Files of this version must stay readable: these bytes are the format."""
    header = (
        f'{{"kind":"thing","written_by":"momostream {__version__}",'
        '"tree":{"dict":{"a":{"array":0},"b":{"tuple":[1,2.5]}}},'
        '"arrays":[{"dtype":"<i2","shape":[2],"offset":0,"size":4}]}'
    ).encode()
    data = forge(header, b"\x01\x00\x00\x01")
    assert container.dumps("thing", {"a": np.array([1, 256], dtype=np.int16), "b": (1, 2.5)}) == data
    assert same(container.loads(data), ("thing", {"a": np.array([1, 256], dtype=np.int16), "b": (1, 2.5)}))


# -----------------------------------------------------------------------------------------------------------
# What does not go in

Point = namedtuple("Point", "x y")


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ({"experts": [{"theta": {1, 2}}]}, r"builtins\.set at 'experts' / 0 / 'theta'$"),
        (object(), r"builtins\.object at the top$"),
        ([np.float64(1.0)], r"numpy\.float64 at 0$"),
        ({"a": np.int64(1)}, r"numpy\.int64 at 'a'$"),
        (Point(1, 2), "Point at the top$"),
        ([OrderedDict()], r"collections\.OrderedDict at 0$"),
        ({"a": {1: 2}}, "keys of a dict must be str, got 1 at 'a'$"),
        ({"a": (0, np.array([None]))}, "array of object at 'a' / 1$"),
        (np.array("text"), "array of <U4 at the top$"),
        (np.zeros(2, dtype=[("x", "f8")]), "array of .* at the top$"),
        (np.array(0, dtype="datetime64[s]"), "array of datetime64"),
        (np.zeros(2, dtype=np.longdouble), "array of .* at the top$"),
        (np.ma.masked_array([1.0]), "MaskedArray at the top$"),
        (1j, r"builtins\.complex at the top$"),
        (bytearray(b"a"), r"builtins\.bytearray at the top$"),
        (len, "at the top$"),
    ],
)
def test_anything_else_is_rejected_with_its_path(tree, message):
    with pytest.raises(TypeError, match=message):
        container.dumps("x", tree)


def test_depth():
    def nested(levels):
        tree = 1
        for _ in range(levels):
            tree = [(tree,)]
        return tree

    assert same(round_trip(nested(50)), nested(50))
    inside_itself = []
    inside_itself.append({"again": inside_itself})
    for tree in (nested(51), inside_itself):
        with pytest.raises(TypeError, match="nested deeper than 100 levels"):
            container.dumps("x", tree)


def test_kind_must_be_text():
    with pytest.raises(TypeError, match="kind must be a str, got int"):
        container.dumps(3, None)


# -----------------------------------------------------------------------------------------------------------
# Damaged and foreign files


@pytest.mark.parametrize("compress", [False, True])
def test_every_flipped_byte_is_found(compress):
    data = container.dumps("x", {"a": np.zeros(40), **small_tree()}, compress=compress)
    for i in range(len(data)):
        for flip in (0x01, 0x80, 0xFF):
            bad = bytearray(data)
            bad[i] ^= flip
            with pytest.raises(FileFormatError):
                container.loads(bytes(bad))


def test_every_truncation_and_extension_is_found():
    data = container.dumps("x", small_tree())
    for n in range(len(data)):
        with pytest.raises(FileFormatError, match="truncated" if n else "not a momostream file"):
            container.loads(data[:n])
    with pytest.raises(FileFormatError, match="altered"):
        container.loads(data + b"\0")


@settings(max_examples=300)
@given(data=st.data())
def test_no_forged_header_raises_anything_else(data):
    """The checksum is right, the header is a valid one with some of its bytes changed."""
    honest = container.dumps("x", small_tree(), compress=data.draw(st.booleans()))
    _, _, header_size, _ = PREFIX.unpack_from(honest)
    header = bytearray(honest[PREFIX.size : PREFIX.size + header_size])
    for at, new in data.draw(st.lists(st.tuples(st.integers(0, header_size - 1), st.sampled_from(b'0919-"[]{},:x')))):
        header[at] = new
    try:
        container.loads(forge(bytes(header), honest[PREFIX.size + header_size : -32]))
    except FileFormatError as error:
        assert "\n" not in str(error)


def entry(**changes):
    array = {"dtype": "<f8", "shape": [2], "offset": 0, "size": 16, **changes}
    return {"kind": "x", "arrays": [array], "tree": {"array": 0}}


def test_forging_helper_makes_valid_files():
    assert same(container.loads(forge(entry(), bytes(16)))[1], np.zeros(2))


@pytest.mark.parametrize(
    "header",
    [
        entry(shape=[10**12]),
        entry(shape=[10**12], size=10**13),
        entry(shape=[0, 10**30], size=0),
        entry(shape=[1] * 100, size=8),
        entry(shape=[-2]),
        entry(shape=[2.0]),
        entry(shape=[True, 2]),
        entry(shape="2"),
        entry(shape=None),
        entry(offset=1),
        entry(offset=-16),
        entry(size=17),
        entry(size=15),
        entry(dtype="|O8"),
        entry(dtype="O"),
        entry(dtype=["<f8"]),
        {"kind": "x", "arrays": [], "tree": {"array": 0}},
        {"kind": "x", "arrays": 2 * entry()["arrays"], "tree": None},
        {**entry(), "tree": [{"array": 0}, {"array": 0}]},
        {"kind": "x", "arrays": [None], "tree": None},
        {"kind": "x", "arrays": {}, "tree": None},
        {"kind": 1, "arrays": [], "tree": None},
        {"kind": "x", "arrays": []},
        [],
        3,
        b"",
        b"\xff",
        b'{"kind": "x", "arrays": [], "tree": NaN}',
        b'{"kind": "x", "arrays": [], "tree": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"kind": "x", "arrays": [], "tree": ' + b"1" * 5000 + b"}",
        *(
            {"kind": "x", "arrays": [], "tree": tree}
            for tree in (
                {"unknown": 1},
                {},
                {"tuple": [], "dict": {}},
                {"tuple": 1},
                {"dict": []},
                {"int": 5},
                {"int": "zz"},
                {"float": "00"},
                {"float": 1.5},
                {"bytes": None},
            )
        ),
    ],
    ids=lambda header: str(header)[:60],
)
def test_nonsense_in_a_header(header):
    with pytest.raises(FileFormatError, match="header cannot be read|much larger than the file"):
        container.loads(forge(header, bytes(16)))


def test_bytes_that_are_not_booleans():
    back = container.loads(forge(entry(dtype="|b1", size=2), b"\x02\x00"))[1]
    assert back.tobytes() == b"\x01\x00"


@pytest.mark.system
def test_claims_are_not_allocated(tmp_path):
    """A forged file of 1 MB claims 1 GB, once in raw bytes and once in what zlib could just make of it."""
    packed = zlib.compress(bytes(16)).ljust(10**6, b"\0")
    headers = [entry(shape=[10**9 // 8], size=10**9), entry(shape=[10**9 // 8], size=10**6)]
    code = (
        "import resource, sys; from momostream.storage import container\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "for path in sys.argv[1:]:\n"
        "    try: container.read(path)\n"
        "    except container.FileFormatError: pass\n"
        "    else: raise AssertionError(path)\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)\n"
    )
    pytest.importorskip("resource")
    paths = [tmp_path / "raw", tmp_path / "packed"]
    for path, header in zip(paths, headers, strict=True):
        path.write_bytes(forge(header, packed))
    done = subprocess.run([sys.executable, "-c", code, *paths], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 50_000  # kilobytes on Linux


@pytest.mark.parametrize("data", [b"", b"\x80\x04K\x01.", b"PK\x03\x04", b"momo!", b"{}", bytes(500)])
def test_other_files(data):
    with pytest.raises(FileFormatError, match="^not a momostream file$"):
        container.loads(data)


def test_newer_versions_are_named():
    data = bytearray(container.dumps("x", None))
    data[8] = 7
    with pytest.raises(FileFormatError, match="written in format 7, newer than 1: update momostream"):
        container.loads(bytes(data))


def test_kinds(tmp_path):
    container.write(tmp_path / "a", "forecaster", None)
    assert container.read(tmp_path / "a") == container.read(tmp_path / "a", "forecaster") == ("forecaster", None)
    with pytest.raises(FileFormatError, match=r"^'.*a': holds a forecaster, expected a regressor$"):
        container.read(tmp_path / "a", "regressor")


# -----------------------------------------------------------------------------------------------------------
# Files: all or nothing


def test_read_gives_what_write_was_given(tmp_path):
    container.write(tmp_path / "a", "x", small_tree(), compress=True)
    assert same(container.read(str(tmp_path / "a")), ("x", small_tree()))
    assert (tmp_path / "a").read_bytes() == container.dumps("x", small_tree(), compress=True)
    container.write(tmp_path / "a", "x", 2)
    assert container.read(tmp_path / "a") == ("x", 2)
    assert os.listdir(tmp_path) == ["a"]


def test_bytes_are_on_the_disk_before_the_name_and_the_name_before_the_return(tmp_path, monkeypatch):
    path, steps = tmp_path / "a", []
    fsync, replace = os.fsync, os.replace

    def note_fsync(descriptor):
        about = os.fstat(descriptor)
        is_folder = os.path.samestat(about, os.stat(tmp_path))
        steps.append(("fsync", "folder" if is_folder else about.st_size))
        fsync(descriptor)

    def note_replace(old, new):
        steps.append(("replace", os.path.basename(new)))
        replace(old, new)

    monkeypatch.setattr(os, "fsync", note_fsync)
    monkeypatch.setattr(os, "replace", note_replace)
    container.write(path, "x", small_tree())
    assert steps == [("fsync", path.stat().st_size), ("replace", "a"), ("fsync", "folder")]


@pytest.mark.parametrize("step", ["fsync", "replace"])
@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt()])
def test_failures_leave_the_old_file_alone(tmp_path, monkeypatch, step, error):
    container.write(tmp_path / "a", "x", 1)

    def fail(*_):
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(os, step, fail)
        with pytest.raises(type(error)):
            container.write(tmp_path / "a", "x", 2)
        with pytest.raises(type(error)):
            container.write(tmp_path / "new", "x", 2)
    assert os.listdir(tmp_path) == ["a"]
    assert container.read(tmp_path / "a") == ("x", 1)


def test_rejected_trees_and_impossible_paths_leave_nothing(tmp_path):
    with pytest.raises(TypeError):
        container.write(tmp_path / "a", "x", {"bad": set()})
    with pytest.raises(FileNotFoundError):
        container.write(tmp_path / "missing" / "a", "x", 1)
    assert os.listdir(tmp_path) == []
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError):
        container.write(tmp_path / "folder", "x", 1)
    assert os.listdir(tmp_path) == ["folder"]


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX systems")
def test_permissions_are_those_of_open(tmp_path):
    old = os.umask(0o027)
    try:
        container.write(tmp_path / "new", "x", 1)
    finally:
        os.umask(old)
    assert stat.S_IMODE(os.stat(tmp_path / "new").st_mode) == 0o640
    os.chmod(tmp_path / "new", 0o604)
    container.write(tmp_path / "new", "x", 2)
    assert stat.S_IMODE(os.stat(tmp_path / "new").st_mode) == 0o604


def test_links_and_long_names(tmp_path):
    container.write(tmp_path / ("n" * 250), "x", 1)
    try:
        os.symlink(tmp_path / ("n" * 250), tmp_path / "link")
    except OSError:
        pytest.skip("no symbolic links here")
    container.write(tmp_path / "link", "x", 2)
    assert os.path.islink(tmp_path / "link")
    assert container.read(tmp_path / ("n" * 250)) == ("x", 2)


def test_relative_paths(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    container.write("a", "x", 1)
    assert container.read("a") == ("x", 1)


@pytest.mark.system
def test_needs_neither_numba_nor_scipy():
    code = "import sys; from momostream.storage import container; container.loads(container.dumps('x', [1.0])); "
    code += "print('numba' in sys.modules, 'scipy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600)
    assert done.stdout.split() == ["False", "False"], done.stderr


# ---------------------------------------------------------------------- in parts


@pytest.mark.parametrize("compress", [False, True])
def test_parts_are_those_of_a_file(compress):
    tree = {"rows": np.arange(1000.0), "none": np.empty((0, 3)), "name": b"T01", "answer": (42, math.nan)}
    header, arrays = container.take_apart("note", tree, compress=compress)
    payload = b"".join(arrays)
    assert container.dumps("note", tree, compress=compress)[28:-32] == header + payload
    assert len(arrays) == 3
    kind, again = container.assemble(header, payload, "note")
    assert kind == "note"
    assert container.dumps("note", again) == container.dumps("note", tree)


def test_parts_that_do_not_fit_are_rejected():
    header, arrays = container.take_apart("note", {"rows": np.arange(4.0)})
    payload = b"".join(arrays)
    with pytest.raises(FileFormatError, match="expected a model"):
        container.assemble(header, payload, "model")
    for bad_header, bad_payload in [(header, payload[:-1]), (header[:-1], payload), (b"", payload), (b"[]", payload)]:
        with pytest.raises(FileFormatError, match="cannot be read"):
            container.assemble(bad_header, bad_payload)
