"""The reference engine: slow, obvious, in memory; the oracle for tests of other engines."""
