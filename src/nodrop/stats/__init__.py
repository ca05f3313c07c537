"""What repetitions show: intervals and comparisons over runs. Pure functions, no I/O."""
