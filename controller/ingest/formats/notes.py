"""Remarks on a file that was accepted; kept with its increment."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from controller.ingest.rejection import RejectedRow

__all__ = ["REJECTED", "Notes"]

REJECTED = "rejected"
"""Name of the remark that has the records which were put aside."""

_COLUMNS_MAX = 50


class Notes:
    """Collects remarks of bounded size while a file is read."""

    def __init__(self) -> None:
        self._extra: set[str] = set()
        self.missing: tuple[str, ...] = ()
        self.compression = "none"
        self.last_line_open = False
        self.rejected: tuple[RejectedRow, ...] = ()
        self.lines: tuple[tuple[int, int], ...] = ()

    def extra_columns(self, names: Iterable[str]) -> None:
        """Note columns of the file that the schema does not have."""
        for name in names:
            if len(self._extra) < _COLUMNS_MAX:
                self._extra.add(name[:200])

    def to_json(self) -> dict[str, Any]:
        """Return the remarks as JSON values; usual values are left out."""
        noted: dict[str, Any] = {}
        if self._extra:
            noted["ignored_columns"] = sorted(
                n.encode(errors="replace").decode() for n in self._extra
            )
        if self.missing:
            noted["missing_columns"] = list(self.missing)
        if self.compression != "none":
            noted["compression"] = self.compression
        if self.last_line_open:
            noted["last_line_open"] = True
        if self.lines:
            noted["lines"] = [list(pair) for pair in self.lines]
        if self.rejected:
            noted["rejected_rows"] = len(self.rejected)
            noted[REJECTED] = [row.to_json() for row in self.rejected]
        return noted
