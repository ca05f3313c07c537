"""Controllers, which choose trials. A controller is pure: it sees records, names the next trial."""
