"""Translators that work on Arrow tables of many groups: no record is touched in Python."""
