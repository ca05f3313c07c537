"""The list of expected skips says what it should."""

from __future__ import annotations

from tests.conftest import unexpected


def test_a_skip_that_nobody_expects_is_named_once() -> None:
    reasons = [
        "no shared data at /x (set NODROP_SHARED_DATA)",
        "no Suricata: gone",
        "no Suricata: gone",
    ]
    assert unexpected(reasons) == ["no Suricata: gone"]
