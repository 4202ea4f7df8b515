"""Reads one claimed file, in a process with limits, into the Parquet parts of its increment."""
