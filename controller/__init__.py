"""The service: decides what runs, runs it, remembers it, and shows it."""
