"""A store that accepts a connection and never answers is said to, in one sentence."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from nodrop.results import store as store_module
from nodrop.results.store import Store, StoreLost


class Silent:
    """A store's file system; each question waits until the test ends."""

    def __init__(self) -> None:
        self.end = threading.Event()

    def _wait(self, *_: object, **__: object) -> Any:
        self.end.wait()

    ls = find = isfile = _wait


QUESTIONS: list[Callable[[Store], object]] = [
    Store.must_answer,
    Store.folders,
    Store.files,
    lambda store: store.has("x"),
]


@pytest.mark.parametrize("ask", QUESTIONS)
@pytest.mark.parametrize("patience_s", [0.01, 0.02])
def test_a_silent_store(
    ask: Callable[[Store], object], patience_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "ANSWERS_S", patience_s)
    silent = Silent()
    try:
        words = f"^s3://bucket/x: it does not answer within {patience_s:g} s"
        with pytest.raises(StoreLost, match=words):
            ask(Store("s3://bucket/x", silent, "bucket/x"))
    finally:
        silent.end.set()


def test_what_a_store_raises_is_what_is_said() -> None:
    class Gone:
        def ls(self, *_: object, **__: object) -> None:
            raise ConnectionRefusedError("no one there")

    with pytest.raises(StoreLost, match=r"^s3://b/y: no one there$"):
        Store("s3://b/y", Gone(), "b/y").must_answer()
