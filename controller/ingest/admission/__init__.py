"""From a listed file to an accepted increment, or to quarantine; each step survives a crash."""
