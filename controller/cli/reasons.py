"""The reason why a file was refused, in words: the first wrong line, then all others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["reason_text"]

_NUMBERS_MAX = 10


def reason_text(reason: Mapping[str, Any] | None, *, whole: bool = False) -> str:
    """Return a claim's reason in words.

    Args:
        reason: As REST gives it; claims of earlier releases have no `lines`.
        whole: Describe each wrong line; otherwise only list some line numbers.
    """
    if not reason:
        return ""
    text = str(reason.get("message") or reason.get("code", ""))
    if reason.get("line") and f"line {reason['line']}" not in text:
        text += f", line {reason['line']}"
    lines = reason.get("lines") or []
    more = ", and there may be more" if reason.get("lines_more") else ""
    if len(lines) < 2:
        return text + more if lines else text
    if whole:
        told = (f"  line {one['line']}{_column(one)}: {one['message']}" for one in lines[1:])
        return "\n".join((text, *told)) + more
    numbers = list(dict.fromkeys(str(one["line"]) for one in lines[1:]))
    shown = ", ".join(numbers[:_NUMBERS_MAX])
    left = len(numbers) - _NUMBERS_MAX
    return f"{text}; wrong too: line {shown}{f' and {left} others' if left > 0 else ''}{more}"


def _column(line: Mapping[str, Any]) -> str:
    return f", column {line['column']!r}" if line.get("column") else ""
