"""The metadata store: `base` opens it, `records` has its values.

Nothing is imported here: a reader's process, which knows `records`, does without
SQLAlchemy, whose import takes longer than all others of it.
"""
