"""The changes of a Delta table, by groups of versions."""
