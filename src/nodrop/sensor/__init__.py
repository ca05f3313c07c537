"""Counters of a sensor at work, of its programs and its kernel, that audit and drops share."""
