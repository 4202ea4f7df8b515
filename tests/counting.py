"""Counts what is asked of an object, by method and first argument."""

from __future__ import annotations

from collections import Counter
from typing import Any

__all__ = ["Counting"]


class Counting:
    """Passes everything on to an object, and counts the calls of its methods.

    Attributes:
        calls: Method -> calls.
        about: Method and first argument, if that is a text -> calls.
    """

    def __init__(self, actual: Any) -> None:
        self._actual = actual
        self.calls: Counter[str] = Counter()
        self.about: Counter[tuple[str, str]] = Counter()

    def reset(self) -> None:
        self.calls.clear()
        self.about.clear()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._actual, name)
        if not callable(found):
            return found

        def counted(*args: Any, **kwargs: Any) -> Any:
            self.calls[name] += 1
            if args and isinstance(args[0], str):
                self.about[name, args[0]] += 1
            return found(*args, **kwargs)

        return counted
