"""Figures of dataflows that several routes show: state, queues, waits, degraded parts."""
