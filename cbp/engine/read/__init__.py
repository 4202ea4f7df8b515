"""Reads of published tables: look-ups, pages, comparison, replay, scrub."""
