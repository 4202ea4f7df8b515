"""Flows: schemas, increments, connectors, framing, positions, generations, retention."""
