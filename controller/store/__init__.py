"""The metadata store: `base` opens it, `records` has its values.

Nothing is imported here: a reader process needs only `records`, and the import of SQLAlchemy takes
longer than all its other imports.
"""
