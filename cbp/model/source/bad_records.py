"""Policy `on_bad_records` of a source, for files that have wrong records.

    quarantine_file                        the default: the whole file is refused
    reject_rows                            up to 100 wrong records of a file are rejected
    {reject_rows: {count: 20, share: 0.01}}
                                           up to 20, and at most one in a hundred

A file with more wrong records goes to quarantine, and so does a file whose rest cannot be read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

COUNT_DEFAULT = 100
COUNT_MAX = 1_000
"""Largest `count`: rejected records are stored with the file's entry in the log of its source, and
that log is read completely."""

_FORM = "quarantine_file, reject_rows, or {reject_rows: {count: 100, share: 0.01}}"


@dataclass(frozen=True, slots=True)
class BadRecords:
    """Maximum number of rejected records in a file, and their maximum share of its records.

    A count of 0 means that a file with a wrong record is refused.
    """

    count: int = 0
    share: float = 1.0

    @property
    def rejects_rows(self) -> bool:
        """Whether wrong records are rejected while the other records are taken in."""
        return self.count > 0

    @classmethod
    def parse(cls, value: Any) -> BadRecords:
        """Read a policy from a document; a `ValueError` lists the allowed values."""
        if value == "quarantine_file":
            return QUARANTINE_FILE
        if value == "reject_rows":
            return cls(COUNT_DEFAULT)
        limits = value.get("reject_rows") if isinstance(value, Mapping) else None
        if not isinstance(limits, Mapping) or len(value) > 1 or limits.keys() - {"count", "share"}:
            message = f"got {value!r}; use {_FORM}"
            raise ValueError(message)
        count, share = limits.get("count", COUNT_DEFAULT), limits.get("share", 1.0)
        message = ""
        if type(count) is not int or not 1 <= count <= COUNT_MAX:
            message = f"count must be an integer from 1 to {COUNT_MAX}, not {count!r}"
        elif type(share) not in (int, float) or not 0 < share <= 1:
            message = f"share must be a number greater than 0 and at most 1, not {share!r}"
        if message:
            raise ValueError(message)
        return cls(count, float(share))

    def to_json(self) -> Any:
        """Return the value for a document; `parse` is the inverse."""
        if not self.rejects_rows:
            return "quarantine_file"
        return {"reject_rows": {"count": self.count, "share": self.share}}


QUARANTINE_FILE = BadRecords()
