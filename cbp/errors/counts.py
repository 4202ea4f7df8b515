"""Numbers with their nouns, for messages: "1 file", "3 files", "once", "3 times"."""

from __future__ import annotations


def format_count(number: int, noun: str, nouns: str = "") -> str:
    """Return a number with its noun; the plural is `nouns`, or the noun with an "s"."""
    return f"{number:,} {noun if number == 1 else nouns or f'{noun}s'}"


def format_times(number: int, more: str = "") -> str:
    """Return how often something happened: "once", or "3 times" and `more`, as in "in a row"."""
    return "once" if number == 1 else " ".join(filter(None, (format_count(number, "time"), more)))
