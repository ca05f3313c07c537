"""Detections of a SUT in a load, found and missed: units, expectations, rules that limit alerts."""
