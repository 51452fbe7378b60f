"""The command ``momostream``, also as ``python -m momostream``."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line; if one of its packages is missing, say what to install."""
    try:
        from momostream.cli.app import app
    except ModuleNotFoundError as error:
        if error.name not in {"typer", "rich"}:
            raise
        sys.exit(f"momostream: the command line needs {error.name}: pip install 'momostream[cli]'")
    app(prog_name="momostream")


if __name__ == "__main__":
    main()
