"""What to try next. A controller is pure: it sees records and names the next trial."""
