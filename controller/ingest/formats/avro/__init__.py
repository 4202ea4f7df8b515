"""Avro: container, schema and values, read strictly."""
