"""Routes: a module per resource, each with the paths that begin with its name."""
