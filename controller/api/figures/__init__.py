"""Figures of dataflows that several routes show: state, queues, waits, what is degraded."""
