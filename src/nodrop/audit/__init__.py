"""Settings of this host that are certain to cost packets, read without changing anything."""
