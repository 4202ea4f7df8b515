"""Limits on the length of error messages: shortened texts, shortened lists, fewer mistakes.

A wrong value can be as large as a document, and occur in it many times.

Guaranteed: `shortened` returns at most `most` characters
(tests/controller/registry/test_documents.py).
"""

from __future__ import annotations

from collections.abc import Iterable

MISTAKES_MAX = 100
"""Most mistakes that one error reports; a check stops at the next one."""

_CUT = " [...] "
_LISTED_MAX = 20


def shortened(text: str, most: int = 1000) -> str:
    """Return a text; if it has more than `most` characters, its middle is cut out."""
    if len(text) <= most:
        return text
    half = (most - len(_CUT)) // 2
    return f"{text[:half]}{_CUT}{text[-half:]}"


def listed(names: list[str] | tuple[str, ...]) -> str:
    """Join names with commas; a long list ends with the number of names left out."""
    more = f" and {len(names) - _LISTED_MAX} more" if len(names) > _LISTED_MAX else ""
    return ", ".join(names[:_LISTED_MAX]) + more


def quoted(names: Iterable[str]) -> str:
    """Join names with commas, each between backticks."""
    return ", ".join(f"`{name}`" for name in names)
