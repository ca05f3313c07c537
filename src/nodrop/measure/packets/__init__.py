"""The books of packets: what each place counted, and what became of the difference."""
