"""Counts of runs and ticks since this process started; for metrics."""
