"""Versions of a dataflow: changing to a new one, code drift, and roll-back."""
