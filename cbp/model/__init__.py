"""Pure values and decisions; standard library only."""
