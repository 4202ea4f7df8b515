"""Verification: compares tables with their recomputation from scratch."""
