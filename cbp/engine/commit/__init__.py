"""Commit of runs: intention log, log entries of tables, roll-back, garbage collection.

`cbp.engine.direct.publication_writer` puts the entries, which makes a run visible.
"""
