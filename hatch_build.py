"""Put the machine code of all kernels into a wheel, so that it need not compile at its first start.

Off unless ``HATCH_BUILD_HOOK_ENABLE_CUSTOM=true``, as ``./run wheel`` sets it: the code fits only the versions of
Python, numba, llvmlite and numpy that it was compiled with, so it takes an environment with the newest of them. Where
it does not fit, the wheel works and compiles.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FOLDER = "momostream/kernels/_machine_code"
PROGRAM = """
import json
from momostream.kernels import _workers
_workers.run_workers(_workers.every_kernel())
print(json.dumps([str(path) for path in _workers.code_files(_workers.every_kernel())]))
"""


class MachineCode(BuildHookInterface):  # type: ignore[type-arg]
    """Compile for the processor that all x86-64 machines of the last ten years include, and ship that."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile the kernels and add their files to the wheel."""
        if version == "editable":
            return
        # Beside the sources, where they are found again by the next build.
        environment = {
            **{name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"},
            "PYTHONPATH": self.root,
            "NUMBA_CPU_NAME": "x86-64-v3",
            "NUMBA_CPU_FEATURES": "",
        }
        said = subprocess.check_output([sys.executable, "-c", PROGRAM], env=environment, cwd=self.root, text=True)
        for path in json.loads(said.splitlines()[-1]):
            build_data["force_include"][path] = f"{FOLDER}/{os.path.basename(path)}"
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
