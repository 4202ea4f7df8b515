"""The metadata store: `base` defines its interface, `sql` opens the implementation.

Nothing is imported here: a reader's process, which knows the records of `base`, does without
SQLAlchemy, whose import takes longer than all others of it.
"""
