"""Why a dropped file was not taken in: one error, with its place inside the file.

Readers raise it without knowing how the file was called; `reason` adds the name
when the file goes to quarantine. `rule` is stable and snake_case:

    value_type  value_range  value_missing  column_missing  column_type
    json_invalid  json_no_object  csv_fields  csv_quote  csv_header  line_end
    line_too_long  encoding  nul_byte  file_empty  file_too_large  file_changed
    file_gone  file_unreadable  not_regular  format_mismatch  manifest_mismatch
    compression_unsupported  compressed_truncated  compressed_damaged
    compressed_trailing_bytes  decompressed_too_large  decompression_ratio
    parquet_damaged  reason_unreadable
"""

from __future__ import annotations

from typing import Any

from cbp.errors import CbpError

__all__ = ["FileRejectedError"]


class FileRejectedError(CbpError):
    """A file is not what its source declares; it goes to quarantine as a whole.

    Args:
        rule: See the module header.
        line: Line in the decompressed text (row of a Parquet file), from 1.
        column: Name of the column.
        cause: What the lower library said.
    """

    code = "file_rejected"

    def __init__(
        self,
        *,
        rule: str,
        message: str,
        line: int | None = None,
        column: str | None = None,
        cause: str = "",
    ) -> None:
        super().__init__(message, rule=rule, line=line, column=column, cause=cause)
        self.rule, self.line, self.column, self.cause = rule, line, column, cause

    def reason(self, *, file: str, claim: str) -> dict[str, Any]:
        """Return what the quarantine and the store keep, as JSON values."""
        place = file
        if self.line is not None:
            place += f", line {self.line}"
        if self.column is not None:
            place += f", column {self.column!r}"
        return {
            "code": self.rule,
            "message": f"{place}: {self.message}",
            "file": file,
            "line": self.line,
            "column": self.column,
            "cause": self.cause or self.message,
            "claim": claim,
        }
