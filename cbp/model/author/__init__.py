"""The author's code: its fingerprint, and checks on what it keeps between calls."""
