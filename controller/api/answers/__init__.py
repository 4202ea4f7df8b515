"""Answers of the API: their schemas, problems with their status, values as JSON."""
