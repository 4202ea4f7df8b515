"""The kernel: calls translators group by group, and computes the diff of their state."""
