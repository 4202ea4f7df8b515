"""Figures of dataflows that several routes show: state, queues, waits, degraded parts.

They are for people: no decision depends on them.
"""
