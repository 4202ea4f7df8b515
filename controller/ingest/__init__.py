"""Drop folder: each file becomes one increment exactly once, or goes to quarantine."""
