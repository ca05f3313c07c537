"""Did it change: run against run, builds in turns, a metric over many runs, knobs proved."""
