"""Trials whose load the SUT answers: what became of each transaction, and how long it took."""
