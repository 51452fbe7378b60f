"""``momostream prune``: remove old lines, and models of machines that are gone, from a store."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from momostream.cli.backup import page_file
from momostream.cli.command import command
from momostream.cli.messages import import_models, notify
from momostream.cli.models import is_store
from momostream.cli.options import QuietOption

if TYPE_CHECKING:
    from momostream.storage.store import Store

__all__ = ["prune"]


@command
def prune(
    store: Annotated[Path, typer.Argument(metavar="STORE", help="File written by run --store or serve.")],
    keep: Annotated[
        str | None,
        typer.Option(metavar="SPAN", help="Remove predictions, alarms and rejected rows older than this, such as 30d."),
    ] = None,
    silent: Annotated[
        str | None,
        typer.Option(
            metavar="SPAN", help="Remove models whose last row is older than this, counted from the newest row of all."
        ),
    ] = None,
    drop: Annotated[
        list[str] | None, typer.Option(metavar="KEY", help="Remove the model of this key. Repeat it for more keys.")
    ] = None,
    quiet: QuietOption = False,
) -> None:
    """Remove old lines and models of machines that are gone, and give the room back to the disk.

    - `momostream prune farm.db --keep 30d`
    - `momostream prune farm.db --silent 90d --drop T07`

    No run may be writing the store. `run --keep 30d`, or `keep = "30d"` in farm.toml, removes old lines while it runs.
    """
    from momostream.horizon.durations import parse_duration

    if keep is None and silent is None and not drop:
        raise ValueError("nothing to remove: use --keep, --silent or --drop")
    if not store.exists() or not is_store(store):
        raise ValueError(f"{store}: is not a store")
    spans = [None if span is None else parse_duration(span) for span in (keep, silent)]
    import_models(quiet=quiet)
    from momostream.storage.store import Store

    before = store.stat().st_size
    with Store(store) as opened:
        gone = _gone(opened, drop or [], spans[1])
        for key in gone:
            _delete(opened, key)
        if spans[0] is not None:
            opened.forget_before(time.time() - 1e-6 * spans[0])
        opened.commit()
        opened.compact()
    _forget_in_page(page_file(store), gone)
    if not quiet:
        from momostream.show.outline import counted

        sizes = f"{before / 1e6:,.1f} MB before, {store.stat().st_size / 1e6:,.1f} MB now"
        notify(f"{store}: {counted(len(gone), 'model')} removed, {sizes}")


def _gone(store: Store, drop: list[str], silent: float | None) -> list[Any]:
    """Keys that were named, and those whose last row is too old."""
    from momostream.runs.plan import last_time

    keys = store.keys()
    texts = {str(key): key for key in keys}
    if unknown := [name for name in drop if name not in texts]:
        raise ValueError(f"{store.path.name}: no model for key {unknown[0]!r}")
    gone = [texts[name] for name in drop]
    if silent is not None:
        times = {key: last_time(store.load(key)) for key in keys}
        known = [found for found in times.values() if found is not None]
        newest = max(known, default=0.0)
        gone += [key for key, at in times.items() if at is not None and newest - at > silent and key not in gone]
    return gone


def _delete(store: Store, key: Any) -> None:
    from momostream.storage.keys import side_key

    store.delete(key)
    if side_key(key) in store:
        store.delete(side_key(key))


def _forget_in_page(path: Path, keys: list[Any]) -> None:
    if path.exists() and keys:
        from momostream.serve.book import Book

        book = Book(path)
        for key in keys:
            book.forget(key)
        book.close()
