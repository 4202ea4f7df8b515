"""The root of the tree of errors, our own bugs, and the way of an error over a process.

Guaranteed: `error_from_dict` gives back what `as_dict` said, as the same class.
Not guaranteed: attributes beyond `message` and `details`; they stay behind.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

__all__ = ["CbpError", "InvariantError", "error_from_dict"]


class CbpError(Exception):
    """Base of every error that this library raises on purpose."""

    code: ClassVar[str] = "cbp_error"
    retryable: ClassVar[bool] = False

    def __init__(self, message: str, **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self.details: Mapping[str, Any] = details

    def as_dict(self) -> dict[str, Any]:
        """Return `{"error_code", "message", "details"}`, ready for JSON."""
        return {"error_code": self.code, "message": self.message, "details": dict(self.details)}


class InvariantError(CbpError):
    """Our own bug, or corrupt data: the stage stops and no record is skipped."""

    code = "invariant_broken"


def error_from_dict(kind: str, value: Mapping[str, Any]) -> CbpError:
    """Rebuild an error that crossed a process as `as_dict()`.

    Args:
        kind: Name of its class; an unknown one becomes an `InvariantError`.
        value: `{"message", "details"}`.
    """
    error = _class_of(kind).__new__(_class_of(kind))
    CbpError.__init__(error, value["message"], **value["details"])
    return error


def _class_of(kind: str) -> type[CbpError]:
    found: list[type[CbpError]] = [CbpError]
    for class_ in found:
        if class_.__name__ == kind:
            return class_
        found.extend(class_.__subclasses__())
    return InvariantError
