"""Errors of the demo."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cbp.errors import InvariantError, OperatingError
from cbp.errors.counts import format_count

__all__ = [
    "CheckFailedError",
    "CorpusTooSmallError",
    "DataflowMissingError",
    "DemoStalledError",
    "FolderUnusableError",
]


class CorpusTooSmallError(OperatingError):
    """The interpreter has too few modules, or the limit is too low."""

    code = "demo_corpus_too_small"
    retryable = False

    def __init__(self, found: int, needed: int, what: str) -> None:
        super().__init__(
            f"found {found} {what}, but the demo needs at least {needed}; "
            "raise --limit, lower --increments, or add --stdlib",
            found=found,
            needed=needed,
            what=what,
        )


class DataflowMissingError(OperatingError):
    """No installed package offers the dataflow."""

    code = "demo_dataflow_missing"
    retryable = False

    def __init__(self, name: str) -> None:
        super().__init__(
            f"no installed package offers the dataflow {name!r}; "
            "install this checkout again: pip install -e .",
            name=name,
        )


class DemoStalledError(OperatingError):
    """The dataflow stopped, or makes no progress."""

    code = "demo_stalled"
    retryable = False

    def __init__(self, why: str, details: Mapping[str, Any]) -> None:
        super().__init__(f"the dataflow does not become idle: {why}", cause=dict(details))


class FolderUnusableError(OperatingError):
    """The demo's folder cannot be created."""

    code = "demo_folder_unusable"
    retryable = False

    def __init__(self, path: str, why: str) -> None:
        super().__init__(
            f"no folder can be made in {path}: {why}; choose another with --root, or set TMPDIR",
            path=path,
            cause=why,
        )


class CheckFailedError(InvariantError):
    """A result differs from the expected one."""

    code = "demo_check_failed"

    def __init__(self, failed: Sequence[str]) -> None:
        super().__init__(
            f"{format_count(len(failed), 'check')} failed: {', '.join(failed)}", checks=list(failed)
        )
