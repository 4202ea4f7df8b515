"""The reference engine: slow, obvious, in memory; the oracle that other engines are tested by."""
