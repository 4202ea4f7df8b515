"""Maintenance of output tables: compaction, retention, migration to a new schema."""
