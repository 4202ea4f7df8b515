"""Calls of author's code outside of runs: Runnables, framing, punctuations."""
