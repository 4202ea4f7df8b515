"""Registration, version changes, rebuilds, deletion."""
