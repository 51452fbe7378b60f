"""``momostream migrate``: bring stores and models of earlier versions to the format of this one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from momostream.cli.command import command
from momostream.cli.messages import import_models, notify
from momostream.cli.models import is_store
from momostream.cli.options import QuietOption

__all__ = ["migrate"]


@command
def migrate(
    file: Annotated[Path, typer.Argument(metavar="STORE|MODEL", help="A store, or a file of one model.")],
    quiet: QuietOption = False,
) -> None:
    """Write a store or model of an earlier version in the format of this one.

    - `momostream backup farm.db farm-before.db && momostream migrate farm.db`

    This version reads files of earlier versions as they are; afterwards they are smaller, and earlier versions cannot
    read them any more. All models are migrated, or none.
    """
    if not file.exists():
        raise ValueError(f"{file}: does not exist")
    import_models(quiet=quiet)
    before = file.stat().st_size
    if is_store(file):
        from momostream.storage.store import Store

        with Store(file) as store:
            store.migrate()
            n_models = len(store)
    else:
        from momostream.storage import models

        models.load(file).save(file)
        n_models = 1
    if not quiet:
        from momostream.show.outline import counted

        sizes = f"{before / 1e6:,.1f} MB before, {file.stat().st_size / 1e6:,.1f} MB now"
        notify(f"{file}: {counted(n_models, 'model')}, {sizes}")
