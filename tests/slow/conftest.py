"""Slow tests are as much alone as unit tests."""

from tests.unit.conftest import no_other_run, no_waiting_for_the_disk

__all__ = ["no_other_run", "no_waiting_for_the_disk"]
