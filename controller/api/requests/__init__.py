"""Checks and parses requests: bodies and their limits, keys, moments, idempotency keys."""
