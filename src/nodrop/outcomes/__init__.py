"""What a SUT found in a load, and what it missed: units, expectations, rules that limit alerts."""
