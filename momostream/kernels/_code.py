"""Machine code of the kernels on disk: which code a kernel needs, for which processor, and the files that hold it.

A file is named after everything its code depends on: bytecode, constants, signatures and flags of the kernel and of all
kernels that it calls, the processor, and the versions of Python, numba, llvmlite and numpy. So code is never stale, an
edit compiles again only what it changes, and a file that a wheel brings is used only where it fits.
"""

from __future__ import annotations

import hashlib
import logging
import os
import pickle
import sys
import time
from collections.abc import Hashable
from functools import cache
from pathlib import Path
from tempfile import NamedTemporaryFile
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any

import llvmlite
import numba
import numpy as np
from llvmlite import binding
from numba.core import config

try:
    # Private to numba. Without them each process compiles for itself; tests/kernels/test_compile.py says when they go.
    from numba.core.caching import NullCache
    from numba.core.codegen import JITCodeLibrary, JitEngine, get_host_cpu_features
    from numba.core.compiler import CompileResult, compile_result
    from numba.core.serialize import dumps

    _PRIVATE = {
        CompileResult: ("_reduce",),
        JitEngine: ("_load_defined_symbols",),
        JITCodeLibrary: ("_finalize_final_module", "_get_module_for_linking", "_set_compiled_object"),
    }
    has_internals = all(hasattr(owner, name) for owner, names in _PRIVATE.items() for name in names)
except ImportError:  # pragma: no cover
    NullCache, JITCodeLibrary, has_internals = object, object, False

__all__ = ["BASELINE", "SHIPPED", "CodeFiles", "extensions", "has_internals", "identity", "target", "writable_folder"]

_log = logging.getLogger("momostream")

# Level 3 of the x86-64 ABI: what processors have had since 2013 (Intel) and 2015 (AMD). Code for it is as fast as code
# for the machine's own processor, has the same results to the bit on all of them, and can be shipped.
BASELINE = "x86-64-v3"
FEATURES = frozenset("avx avx2 bmi bmi2 cx16 f16c fma lzcnt movbe popcnt sahf sse3 sse4.1 sse4.2 ssse3 xsave".split())
# A wheel brings code here, and a clone keeps its own.
SHIPPED = Path(__file__).parent / "_machine_code"
OUTDATED_SECONDS = 7 * 24 * 3600.0


# ---------------------------------------------------------------------- what a kernel depends on

# Hashes of what numba compiles for functions that are not kernels (`numba.extending.intrinsic`), by these functions.
extensions: dict[Any, str] = {}


def identity(function: FunctionType, signatures: list[Any], options: dict[str, Any], known: dict[Any, str]) -> str:
    """Hash of all that decides about the machine code of a kernel, except processor and versions.

    Parameters
    ----------
    function
        The kernel in Python.
    signatures, options
        What it is compiled for.
    known
        Hashes of the kernels defined before, by their Python functions.
    """
    parts = [function.__module__, function.__qualname__]
    parts += [f"{name}={_constant(options[name])}" for name in sorted(options)]
    parts += map(str, signatures)
    parts += _code_parts(function.__code__)
    for name, value in sorted(referenced(function).items()):
        parts.append(f"{name}={_value(name, value, known)}")
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def referenced(function: FunctionType) -> dict[str, Any]:
    """Names outside of a function that its code refers to, with their values."""
    names = [name for code in _all_codes(function.__code__) for name in code.co_names]
    outside = {name: function.__globals__[name] for name in names if name in function.__globals__}
    cells = function.__closure__ or ()
    return outside | {name: cell.cell_contents for name, cell in zip(function.__code__.co_freevars, cells, strict=True)}


def _all_codes(code: CodeType) -> list[CodeType]:
    """The code of a function and of the functions inside it."""
    inner = [each for constant in code.co_consts if isinstance(constant, CodeType) for each in _all_codes(constant)]
    return [code, *inner]


def _code_parts(code: CodeType) -> list[str]:
    return [
        part
        for each in _all_codes(code)
        for part in (
            each.co_code.hex(),
            repr((each.co_names, each.co_varnames, each.co_freevars, each.co_cellvars)),
            *(_constant(constant) for constant in each.co_consts if not isinstance(constant, CodeType)),
        )
    ]


def _constant(value: Any) -> str:
    """A text that differs when a constant differs."""
    if isinstance(value, set | frozenset):
        return repr(sorted(map(_constant, value)))
    if isinstance(value, tuple):
        return f"({', '.join(map(_constant, value))})"
    if value is None or isinstance(value, bool | int | float | str | bytes):
        return f"{type(value).__name__} {value!r}"
    raise TypeError(f"a kernel cannot refer to {value!r}")


def _value(name: str, value: Any, known: dict[Any, str]) -> str:
    """A text that differs when the code that refers to a value has to be compiled again."""
    function = getattr(value, "py_func", None)
    if function in known:
        return known[function]
    if isinstance(value, Hashable) and value in extensions:
        return extensions[value]
    if isinstance(value, np.ndarray | np.generic):
        return f"{value.dtype} {value.shape} {hashlib.sha256(value.tobytes()).hexdigest()}"
    if isinstance(value, ModuleType) and value.__name__ in {"math", "numpy"}:
        return value.__name__
    if isinstance(value, BuiltinFunctionType | np.ufunc | type):
        return f"{getattr(value, '__module__', 'numpy')}.{value.__name__}"
    try:
        return _constant(value)
    except TypeError:
        raise TypeError(f"a kernel cannot refer to {name}, a {type(value).__name__}: use numbers or kernels") from None


# ---------------------------------------------------------------------- for which machine


@cache
def target() -> tuple[str, str]:
    """Name and features of the processor to compile for: the common baseline if this one has all of it."""
    is_chosen = config.CPU_NAME is not None or config.CPU_FEATURES is not None
    if not is_chosen and binding.get_process_triple().startswith("x86_64"):
        found = binding.get_host_cpu_features()
        if all(found.get(name) for name in FEATURES):
            return BASELINE, ""
    # As numba does it.
    features = get_host_cpu_features() if config.CPU_FEATURES is None else config.CPU_FEATURES
    return config.CPU_NAME or binding.get_host_cpu_name(), features


@cache
def _versions() -> str:
    """All else that machine code depends on."""
    numpy_minor = ".".join(np.__version__.split(".")[:2])
    settings = [getattr(config, name, None) for name in ("OPT", "BOUNDSCHECK", "DEBUGINFO_DEFAULT", "USING_SVML")]
    tags = (sys.implementation.cache_tag, numba.__version__, llvmlite.__version__, numpy_minor)
    return repr((*tags, binding.get_process_triple(), settings))


# ---------------------------------------------------------------------- the files


@cache
def folders() -> tuple[Path, ...]:
    """Folders that may hold machine code, the preferred one first."""
    chosen = os.environ.get("NUMBA_CACHE_DIR")
    if chosen:
        return (Path(chosen) / "momostream", SHIPPED)
    try:
        home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:
        # A user without a home.
        return (SHIPPED,)
    return (SHIPPED, home / "momostream")


@cache
def writable_folder() -> Path | None:
    """The first folder that can be written, if there is one."""
    for folder in folders():
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with NamedTemporaryFile(dir=folder):
                return folder
        except OSError:
            continue
    return None


class CodeFiles(NullCache):  # type: ignore[misc, unused-ignore]
    """The machine code of one kernel on disk, as numba asks for it.

    Parameters
    ----------
    function
        The kernel in Python.
    identity
        Its hash.
    signatures
        The signatures it is compiled for.
    """

    def __init__(self, function: FunctionType, identity: str, signatures: list[Any]) -> None:
        self._name = f"{function.__module__.rpartition('.')[2]}.{function.__name__}"
        self._identity, self._signatures = identity, signatures

    @property
    def cache_path(self) -> str:
        """Folder that new code is written to."""
        return str(writable_folder() or "")

    def is_complete(self) -> bool:
        """Whether there is code for each signature and the target."""
        return len(self.paths()) == len(self._signatures)

    def paths(self) -> list[Path]:
        """The files with code for the target, one for each signature that has one."""
        names = [self._file_name(signature, target()) for signature in self._signatures]
        places = [[folder / name for folder in folders() if (folder / name).exists()] for name in names]
        return [found[0] for found in places if found]

    def load_overload(self, signature: Any, context: Any) -> Any:
        """The compiled kernel, or None if there is none that fits."""
        # Code for the target comes from workers and wheels; without them, a process compiles for its own processor.
        for processor in dict.fromkeys((target(), context.codegen().magic_tuple()[1:])):
            name = self._file_name(signature, processor)
            for folder in folders():
                if (data := _read(folder / name)) is not None:
                    return _loaded(context, data)
        return None

    def save_overload(self, signature: Any, result: Any) -> None:
        """Write a compiled kernel, if there is a folder for it."""
        folder = writable_folder()
        # Code that holds addresses of this process is useless to others.
        if folder is None or result.library.has_dynamic_globals:
            return
        path = folder / self._file_name(signature, result.codegen.magic_tuple()[1:])
        data = dumps(result._reduce())
        try:
            with NamedTemporaryFile(dir=folder, delete=False) as file:
                file.write(hashlib.sha256(data).digest() + data)
            os.replace(file.name, path)
            _remove_outdated(path)
        except OSError as error:
            _log.warning("machine code cannot be kept: %s", error)

    def _file_name(self, signature: Any, processor: tuple[str, str]) -> str:
        about = repr((self._identity, str(signature), tuple(processor), _versions()))
        number = self._signatures.index(signature)
        return f"{self._name}-{number}-{hashlib.sha256(about.encode()).hexdigest()[:20]}.code"


class _Library(JITCodeLibrary):  # type: ignore[misc, unused-ignore]
    """Machine code from disk. Its bitcode is parsed only when a kernel that calls it is compiled.

    Parameters
    ----------
    codegen, name
        As numba makes its libraries.
    code, bitcode
        Machine code, and what callers link.
    """

    def __init__(self, codegen: Any, name: str, code: bytes, bitcode: bytes) -> None:
        super().__init__(codegen, name)
        self._bitcode = bitcode
        self.enable_object_caching()
        self._set_compiled_object(code)
        self._finalize_final_module()

    def _get_module_for_linking(self) -> Any:
        if self._shared_module is None:
            self._shared_module = binding.parse_bitcode(self._bitcode)
            self._codegen._engine._load_defined_symbols(self._shared_module)
        return self._shared_module


def _loaded(context: Any, data: bytes) -> Any:
    """The compiled kernel that `CompileResult._reduce` has written.

    As `CompileResult._rebuild` does it, without what only compiling needs: bitcode and numba's tables of all functions
    and types. They took three quarters of the time, and numba fills the tables itself before it compiles.
    """
    libdata, descriptor, environment, signature, is_object, lifted, annotation, init, others = pickle.loads(data)
    codegen = context.codegen()
    name, _, (code, bitcode) = libdata
    library = _Library(codegen, name, code, bitcode)
    codegen._engine._defined_symbols.add(descriptor.llvm_cpython_wrapper_name)
    result = compile_result(
        target_context=context,
        typing_context=context.typing_context,
        library=library,
        environment=environment,
        entry_point=context.get_executable(library, descriptor, environment),
        fndesc=descriptor,
        signature=signature,
        objectmode=is_object,
        lifted=lifted,
        type_annotation=annotation,
        reload_init=init,
        referenced_envs=others,
    )
    for other in others:
        codegen.set_env(other.env_name, other)
    return result


def _read(path: Path) -> bytes | None:
    """The machine code in a file; None if the file is missing or damaged."""
    try:
        content = path.read_bytes()
    except OSError:
        return None
    if hashlib.sha256(content[32:]).digest() == content[:32]:
        return content[32:]
    _log.warning("%s is damaged and is compiled again", path)
    return None


def _remove_outdated(path: Path) -> None:
    """Remove what older sources of a kernel left long ago."""
    stem = path.name.rpartition("-")[0]
    for other in path.parent.glob(f"{stem}-*.code"):
        if other.stat().st_mtime < time.time() - OUTDATED_SECONDS:
            other.unlink(missing_ok=True)
