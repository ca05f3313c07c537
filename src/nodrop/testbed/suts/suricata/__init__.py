"""Suricata as the SUT."""

from nodrop.testbed.suts.suricata.sut import Suricata

__all__ = ["Suricata"]
