"""Routes about who may do what, and who did what."""
