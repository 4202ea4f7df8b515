"""Candidates take turns on the same increments; their answers are compared."""
