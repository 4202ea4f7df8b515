"""Coded errors that cross a process, from a worker to the driver, in the text of an exception."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

from cbp.errors import CbpError, error_from_dict

_MARK = "|cbp-error|"
"""Mark before and after a coded error in the text of an exception."""


@contextmanager
def carrying_errors() -> Iterator[None]:
    """Carry a `CbpError` in an exception's text, for code that yields records and has no report."""
    try:
        yield
    except CbpError as error:
        text = json.dumps({"type": type(error).__name__, **error.as_dict()})
        message = f"{_MARK}{text}{_MARK}"
        raise RuntimeError(message) from error


def carried_error(text: str) -> CbpError | None:
    """Return the error that a task before the shuffle reported in its exception's text."""
    parts = text.split(_MARK)
    if len(parts) < 3:
        return None
    details = json.loads(parts[1])
    return error_from_dict(details["type"], details)
