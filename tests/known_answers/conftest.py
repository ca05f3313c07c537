"""Trials whose truth is known: whatever is put in, no sentence of nodrop may say otherwise."""

from __future__ import annotations

from tests.e2e.conftest import _patience, _root, real_trace, run, suricata

__all__ = ("_patience", "_root", "real_trace", "run", "suricata")
