"""Any program that captures packets, described by a file."""

from nodrop.suts.command.sut import Command

__all__ = ["Command"]
