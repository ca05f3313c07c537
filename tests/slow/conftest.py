"""Slow tests do not wait for the disk either."""

from tests.unit.conftest import no_waiting_for_the_disk

__all__ = ["no_waiting_for_the_disk"]
