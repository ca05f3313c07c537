"""Watching a run from elsewhere: everything is read from its run directory, nothing is asked."""
