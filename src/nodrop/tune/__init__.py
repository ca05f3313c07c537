"""Settings of a sensor as data: planned, applied, read back, put back."""
