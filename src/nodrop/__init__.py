"""nodrop: how much traffic an IDS carries before it drops a packet, and where the packets die."""

__version__ = "0.1.0"
