"""Why a dropped file was rejected: one error, with the position inside the file.

Readers raise it without knowing the file's name; `reason` adds the name when the file goes to
quarantine. `rule` is stable and snake_case:

    value_type  value_range  value_missing  column_missing  column_type  column_unknown
    json_invalid  json_no_object  access_log_invalid  csv_fields  csv_quote  csv_header  line_end
    line_too_long  encoding  nul_byte  file_empty  file_too_large  file_changed
    file_gone  file_unreadable  not_regular  format_mismatch  manifest_mismatch  manifest_refused
    compression_unsupported  compressed_truncated  compressed_damaged
    compressed_trailing_bytes  decompressed_too_large  decompression_ratio
    parquet_damaged  parquet_limits  parquet_encrypted  avro_damaged  avro_limits
    reason_unreadable  file_grew  file_rewritten  file_too_slow  file_too_large_in_memory
    file_ends_reader  content_known  same_name  nothing_to_replace  inputs_not_kept  name_shared
    manifest_replaces  replace_refused  correction_unnamed  delta_version_gone
    delta_table_replaced  delta_unsupported  delta_damaged
    bad_records  xml_damaged  xml_doctype  xml_limits  xml_no_record  xml_record
"""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from cbp.errors import CbpError

_SAID_MAX = 300


@dataclass(frozen=True, slots=True)
class BadLine:
    """One mistake in a file, with the fields of `FileRejectedError`.

    `text` is the text of the record, if the source rejects single records.
    """

    line: int
    column: str | None
    rule: str
    message: str
    cause: str = ""
    text: str = ""

    def to_json(self) -> list[Any]:
        """Return a rejected record as JSON values; `from_json` is the inverse."""
        return [self.line, self.column, self.rule, self.message, self.text]

    @classmethod
    def from_json(cls, value: Sequence[Any]) -> BadLine:
        """Read the output of `to_json`."""
        line, column, rule, message, text = value
        return cls(line, column, rule, message, text=text)


class FileRejectedError(CbpError, code="file_rejected"):
    """A file does not match its source's declaration; the entire file goes to quarantine.

    Args:
        line: Line in the decompressed text (row of a Parquet file), from 1.
        lines: All wrong lines that were found, in order; up to 100.
        lines_more: Whether there may be more wrong lines.
        new_columns: Declarations of columns that the schema lacks (`device STRING`), if the file
            suggests their types.
    """

    def __init__(
        self,
        rule: str,
        message: str,
        *,
        line: int | None = None,
        column: str | None = None,
        cause: str = "",
        lines: tuple[BadLine, ...] = (),
        lines_more: bool = False,
        new_columns: tuple[str, ...] = (),
    ) -> None:
        super().__init__(message, rule=rule, line=line, column=column, cause=cause)
        self.rule, self.line, self.column, self.cause = rule, line, column, cause
        self.lines, self.lines_more, self.new_columns = lines, lines_more, new_columns

    def arguments(self) -> dict[str, Any]:
        """Return the arguments that build the same error."""
        names = ("rule", "message", "line", "column", "cause", "lines", "lines_more", "new_columns")
        return {name: getattr(self, name) for name in names}

    def __reduce__(self) -> tuple[Any, ...]:  # so that a reader process can send it
        return partial(FileRejectedError, **self.arguments()), ()

    def proposing(self, columns: Sequence[str], source: str) -> FileRejectedError:
        """Return the error with the columns that the file suggests for its source."""
        if not columns:
            return self
        message = (
            f"{self.message}. A sample of the file has columns that the source's schema lacks: "
            f"{', '.join(columns)}. `cbp quarantine add-columns DATAFLOW {source}` declares these "
            "columns after you confirm them, and then takes in the refused files unchanged"
        )
        arguments = self.arguments() | {"message": message, "new_columns": tuple(columns)}
        return FileRejectedError(**arguments)

    @property
    def lacks_only_columns(self) -> bool:
        """Whether the file could probably be taken in if the schema had its columns."""
        return bool(self.new_columns) and all(b.rule == self.rule for b in self.lines)

    def not_added(self, why: str) -> FileRejectedError:
        """Return the error of a file whose columns could not be added to the source's schema."""
        message = (
            f"{self.message}. The source declares `unknown: add`, but the service could not add "
            f"the columns: {why}"
        )
        return FileRejectedError(**self.arguments() | {"message": message})

    def reason(self, *, file: str, claim: str) -> dict[str, Any]:
        """Return the reason that the quarantine and the store keep, as JSON values."""
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
            "lines": [
                {"line": b.line, "column": b.column, "code": b.rule, "message": b.message}
                for b in self.lines
            ],
            "lines_more": self.lines_more,
            **({"new_columns": list(self.new_columns)} if self.new_columns else {}),
        }


def unforeseen(error: Exception) -> FileRejectedError:
    """Return the rejection for an unexpected error while a file was read.

    A file's content must never stop the files after it. So the file goes to quarantine with the
    error's class and the place in our code.
    """
    said = str(error)[:_SAID_MAX]
    cause = f"{type(error).__name__}: {said}" if said else type(error).__name__
    place = place_of(error)
    message = (
        f"the service could not read the file because of an unexpected error: {cause} (at "
        f"{place}). No record of the file was taken in. Please report this error with the file"
    )
    return FileRejectedError("file_unreadable", message, cause=f"{cause} at {place}")


def place_of(error: BaseException) -> str:
    """Return `file:line` in this package where an error was raised."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "/controller/" in frame.filename]
    if not ours:
        return "unknown"
    file = ours[-1].filename.rpartition("/controller/")[2]
    return f"controller/{file}:{ours[-1].lineno}"


def manifest_refused(file: str, error: FileRejectedError) -> FileRejectedError:
    """Return why a valid file is rejected together with another file of its manifest."""
    message = (
        "no file of the manifest was taken in, since all of its files form one increment and one "
        f"of them was rejected: {error.reason(file=file, claim='')['message'][:_SAID_MAX]}. Fix "
        "that file, then drop all files again with the manifest"
    )
    return FileRejectedError("manifest_refused", message)
