"""Candidates that run our engine or our service."""
