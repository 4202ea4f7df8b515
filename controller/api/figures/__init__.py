"""Figures of dataflows that several routes show: state, queues, waits, degraded dataflows.

They are for people: no decision of the service depends on them.
"""
