"""Reads for users: states, outputs, snapshots, explanations, recovery preview."""
