"""Run directories in a store, by the word of a command line: `s3://bucket/folder/NAME`.

Commands work on the copy here (results/stored.py); a path is left as it is.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Annotated

import typer

from nodrop.cli.saying import complain, say
from nodrop.errors import BadInput, NotReady
from nodrop.results.store import MARK, before_anything


def add_to(app: typer.Typer) -> None:
    app.command("put")(put)


def put(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Run directory, on this host.")],
    place: Annotated[
        str, typer.Argument(metavar="URL", help="Folder in a store: s3://bucket/folder.")
    ],
) -> None:
    """Put a run directory into a store; what it has there already is not sent again.

    \b
    nodrop put results/capacity-my-20261126T101500Z s3://lab/runs
    """
    from nodrop.results.store import Store
    from nodrop.results.stored import put_run

    store = Store.of(place)
    with before_anything():
        store.must_answer()
    say(put_run(directory, store))


def run_directory(text: str | Path) -> Path:
    """Its copy, which has what is there."""
    if MARK not in str(text):
        return Path(text)
    from nodrop.results.names import safe_name
    from nodrop.results.stored import brought

    url = str(text).rstrip("/")
    above, _, name = url.rpartition("/")
    if above.endswith("/") or name != safe_name(name):
        raise BadInput(f"{text}: names no run directory; s3{MARK}bucket/folder/NAME does")
    here = _folder_here(above) / name
    with before_anything():
        writer = brought(url, here)
    if writer:
        complain(f"{url}: {writer}; this is what was there now")
    return here


def out_folder(text: str | Path) -> Path:
    """Where the copies of all its run directories lie; the copy, if it is one itself."""
    if MARK not in str(text):
        return Path(text)
    from nodrop.hosts.privileges import in_user_namespace
    from nodrop.results.names import MANIFEST
    from nodrop.results.store import Store
    from nodrop.results.stored import copy_of

    if in_user_namespace():
        raise NotReady(
            f"{text}: a normal user's run has a network of its own, which leads to no store",
            hint="run as root; or leave --out alone, and `nodrop put` the run directory afterwards",
        )
    with before_anything():
        store = Store.of(str(text))
        store.must_answer()
        if store.has(MANIFEST):
            return run_directory(text)
        here = _folder_here(store.url)
        copy_of(store.url, here)
        return here


def _folder_here(url: str) -> Path:
    """Folder for copies from a store. Its content may be nowhere else yet, so it is no cache."""
    from nodrop.hosts.folders import state_folder
    from nodrop.results.names import safe_name

    readable = safe_name(url.partition(MARK)[2])[:60]
    digest = hashlib.sha256(url.encode()).hexdigest()[:8]
    return state_folder() / "stores" / f"{readable}-{digest}"
