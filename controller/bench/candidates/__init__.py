"""The candidates, one module each; none is imported before it is asked for."""
