"""Readers: from the bytes of one file to checked batches of records, or to its wrong lines."""
