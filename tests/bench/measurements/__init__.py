"""What is measured around a run, and the results as values."""
