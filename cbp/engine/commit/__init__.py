"""Commit of runs: intention log, publication to the tables, roll-back, garbage collection."""
