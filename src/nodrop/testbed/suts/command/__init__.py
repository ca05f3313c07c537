"""Any program that captures packets, described by a file."""

from nodrop.testbed.suts.command.sut import Command

__all__ = ["Command"]
