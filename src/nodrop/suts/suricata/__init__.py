"""Suricata as the SUT."""

from nodrop.suts.suricata.sut import Suricata

__all__ = ["Suricata"]
