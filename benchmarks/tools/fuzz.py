"""Readers under a fuzzer that is guided by coverage, until it finds something that is wrong.

    python -m benchmarks.tools.fuzz csv FOLDER -max_total_time=180    # FOLDER keeps what reached new code
    python -m benchmarks.tools.fuzz csv crash-1f2e                    # repeats a file that was found

The readers are those of `benchmarks.tools.gauntlet_bytes`. Needs atheris, which the project does not declare, and takes
the options of libFuzzer.
"""

from __future__ import annotations

import sys
from pathlib import Path

import atheris

# Before the readers: compiled code cannot be followed.
import momostream.estimators.regressor  # noqa: F401

FOLLOWED = ["momostream.feeds", "momostream.serve.push", "momostream.storage.container"]


def main() -> None:
    """Hand a reader to the fuzzer."""
    name = sys.argv.pop(1)
    with atheris.instrument_imports(include=FOLLOWED):
        from benchmarks.tools.gauntlet_bytes import READERS, STARTS
    folders = [Path(argument) for argument in sys.argv[1:] if Path(argument).is_dir()]
    for folder in folders[:1]:
        for number, start in enumerate(STARTS[name]):
            (folder / f"start-{number}").write_bytes(start)
    atheris.Setup(sys.argv, READERS[name])
    atheris.Fuzz()


if __name__ == "__main__":
    main()
