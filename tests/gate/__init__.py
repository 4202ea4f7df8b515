"""The gate: runs the tests, and decides whether what they said lets a change land."""
