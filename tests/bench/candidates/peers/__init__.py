"""Candidates that share no code with our engine."""
