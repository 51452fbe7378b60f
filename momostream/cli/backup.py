"""``momostream backup``: copy stores while they are written."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path
from typing import Annotated

import typer

from momostream.cli.command import command
from momostream.cli.messages import import_models, notify
from momostream.cli.models import is_store, read_only
from momostream.cli.options import QuietOption

__all__ = ["backup", "page_file"]


@command
def backup(
    source: Annotated[Path, typer.Argument(metavar="STORE|FARM.TOML", help="A store, or all stores of a farm.")],
    to: Annotated[Path, typer.Argument(metavar="TO", help="New file for a store; folder for a farm.")],
    check: Annotated[bool, typer.Option("--check", help="Also load every model of the copy.")] = False,
    quiet: QuietOption = False,
) -> None:
    """Copy a store as of its last commit, also while a run or server writes it.

    - `momostream backup farm.db farm-monday.db`
    - `momostream backup farm.toml /backups/monday`

    A copy of a farm has its configuration, its stores and what its page shows. To restore it, put the files back while
    no server runs, without the old `-wal`, `-shm` and `-lock` files and without the old folders of pushed rows: clients
    that send rows again from before the backup continue it, and rows that it has already learnt are counted once.
    """
    if source.suffix != ".toml":
        _copy_store(source, to, check)
    else:
        from momostream.cli.serve import store_path
        from momostream.serve.config import read_config

        farm = read_config(source)
        to.mkdir(parents=True, exist_ok=True)
        names = [store_path(farm, feed).name for feed in farm.feeds]
        for name in (source.name, *names):
            if (to / name).exists():
                raise ValueError(f"{to / name}: already exists: choose a new folder")
            if names.count(name) > 1:
                raise ValueError(f"two stores are called {name}: copy them one by one")
        for feed in farm.feeds:
            store = store_path(farm, feed)
            if store.exists():
                _copy_store(store, to / store.name, check)
            else:
                notify(f"{store}: does not exist yet")
        shutil.copyfile(source, to / source.name)
    if not quiet:
        notify(f"backup: {to}")


def page_file(store: Path) -> Path:
    """The file beside a store with what the page shows."""
    return store.with_name(f"{store.name}-page")


def _copy_store(path: Path, to: Path, check: bool) -> None:
    if not path.exists():
        raise ValueError(f"{path}: does not exist")
    if not is_store(path):
        raise ValueError(f"{path}: is not a store: copy a file of one model as it is")
    if not to.parent.is_dir():
        raise ValueError(f"{to}: the folder does not exist")
    with read_only(path) as store:
        store.backup(to)
    if check:
        import_models()
        with read_only(to) as copy:
            for key in copy.keys(side=True):
                copy.load(key)
    # After the store: rows that the page has beyond it are written once more when they are learnt again.
    if page_file(path).exists():
        _copy_database(page_file(path), page_file(to))


def _copy_database(path: Path, to: Path) -> None:
    before, after = sqlite3.connect(path), sqlite3.connect(to)
    try:
        before.backup(after)
    finally:
        after.close()
        before.close()
