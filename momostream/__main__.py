"""The command ``momostream``, also as ``python -m momostream``."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line; says what to install where its packages are missing."""
    try:
        from momostream.cli import main as cli
    except ModuleNotFoundError as error:
        if error.name not in {"typer", "rich"}:
            raise
        sys.exit(f"momostream: the command line needs {error.name}: pip install 'momostream[cli]'")
    cli.app(prog_name="momostream")


if __name__ == "__main__":
    main()
