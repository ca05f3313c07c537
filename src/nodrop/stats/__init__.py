"""What repetitions tell: intervals and comparisons over runs. Pure functions, no I/O."""
