"""The root of the error tree, `InvariantError`, and how an error crosses a process boundary.

Guaranteed: `error_from_dict` rebuilds the error that `as_dict` described, as the same class. No
error has a value that `keep_secret` was given (tests/security/test_canary.py).
Not guaranteed: attributes other than `message` and `details`; they are lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from cbp.errors.masks import hide_secrets


class CbpError(Exception):
    """An error that this library raises on purpose; the base class of all of them.

    A subclass names its `code`, and `retryable` if its value differs from that of its base class:

        class DiskFullError(OperatingError, code="disk_full"): ...
    """

    code: ClassVar[str] = "cbp_error"
    retryable: ClassVar[bool] = False

    def __init_subclass__(cls, code: str | None = None, retryable: bool | None = None) -> None:
        super().__init_subclass__()
        if code is not None:
            cls.code = code
        if retryable is not None:
            cls.retryable = retryable

    def __init__(self, message: str, **details: Any) -> None:
        self.message: str = hide_secrets(message)
        self.details: Mapping[str, Any] = hide_secrets(details)
        super().__init__(self.message)

    def as_dict(self) -> dict[str, Any]:
        """Return `{"error_code", "message", "details"}`, ready for JSON."""
        return {"error_code": self.code, "message": self.message, "details": dict(self.details)}


class InvariantError(CbpError, code="invariant_broken"):
    """Our own bug, or corrupt data: the stage stops and no record is skipped."""


def format_unknown(name: str, found: object, known: int) -> InvariantError:
    """Return the error for a record in a format of another release, which this one cannot read."""
    return InvariantError(
        f"the format of this {name} is {found}, but this release of cbp reads format {known} only: "
        "start the release that wrote it"
    )


def error_from_dict(kind: str, value: Mapping[str, Any]) -> CbpError:
    """Rebuild an error that another process sent as `as_dict()`.

    `kind` is the name of its class. An unknown name gives an `InvariantError`.
    """
    error = _class_of(kind).__new__(_class_of(kind))
    CbpError.__init__(error, value["message"], **value["details"])
    return error


def _class_of(kind: str) -> type[CbpError]:
    classes: list[type[CbpError]] = [CbpError]
    for class_ in classes:
        if class_.__name__ == kind:
            return class_
        classes.extend(class_.__subclasses__())
    return InvariantError
