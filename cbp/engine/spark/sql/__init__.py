"""Translators in Spark SQL: the Spark plan of a run, and the Python tasks around it."""
