"""Writes the parts of the guides that are made from the code: `python -m tests.guides.write`."""
