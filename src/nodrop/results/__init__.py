"""The result vocabulary and the run directory, the only thing between measuring and reporting."""
