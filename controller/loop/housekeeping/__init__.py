"""Garbage collection, retention of inputs, scrubbing."""
