"""Routes: a module per resource, each with the paths that begin with its name.

To add routes, add a module: `controller/api/app.py` finds every router below this package.
"""
