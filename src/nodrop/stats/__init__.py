"""Statistics of repetitions: intervals and comparisons over runs. Pure functions, no I/O."""
