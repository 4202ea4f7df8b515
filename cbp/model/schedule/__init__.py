"""Scheduling: which runs start next, run slots, waits, back-off, and the leader's lease."""
