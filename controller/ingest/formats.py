"""Selects the reader for a claimed file by the format that its source declares."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from cbp.errors import DefinitionError, Mistake
from cbp.model.dataflow.dataflow import SourceNode
from cbp.model.dataflow.source_options import ReadOptions
from controller.ingest.bad_lines import BadLines
from controller.ingest.content import ClaimedContent, decompressed, sniff
from controller.ingest.delimited import read_csv
from controller.ingest.jsonl import read_jsonl
from controller.ingest.limits import IngestLimits
from controller.ingest.lines import text_blocks
from controller.ingest.notes import Notes
from controller.ingest.parquet import read_parquet
from controller.ingest.rejection import FileRejectedError

__all__ = ["check_options", "read_batches"]


def read_batches(
    content: ClaimedContent, source: SourceNode, limits: IngestLimits, notes: Notes
) -> Iterator[pa.RecordBatch]:
    """Yield the file's records with the source's schema, in the file's order.

    Either every record is yielded, or an error is raised that lists up to 100 wrong lines. After
    an error the caller must discard the records that were yielded.

    Raises:
        FileRejectedError: The file does not match what the source declares.
        OSError: The device failed.
    """
    bad = BadLines()
    try:
        yield from _batches(content, source, limits, notes, bad)
    except FileRejectedError as error:
        raise bad.joined(error) from error
    bad.end()


def _batches(
    content: ClaimedContent, source: SourceNode, limits: IngestLimits, notes: Notes, bad: BadLines
) -> Iterator[pa.RecordBatch]:
    options = ReadOptions.parse(source.format, source.options)
    if source.format == "parquet":
        yield from read_parquet(content, source.schema, options.rules, limits, notes, bad)
        return
    compression = sniff(content)
    notes.compression = compression
    chunks = decompressed(content, compression, limits)
    blocks = text_blocks(chunks, line_bytes_max=limits.line_bytes_max, bad=bad)
    if source.format == "jsonl":
        yield from read_jsonl(
            blocks,
            source.schema,
            options.rules,
            batch_rows=limits.batch_rows,
            notes=notes,
            bad=bad,
        )
        return
    yield from read_csv(
        blocks,
        source.schema,
        options,
        batch_rows=limits.batch_rows,
        record_bytes_max=limits.line_bytes_max,
        notes=notes,
        bad=bad,
    )


def check_options(source: SourceNode) -> None:
    """Check a source's options.

    Raises:
        DefinitionError: Rule `option_invalid`.
    """
    try:
        ReadOptions.parse(source.format, source.options)
    except ValueError as exc:
        where = f"sources.{source.name}.options"
        raise DefinitionError(Mistake("option_invalid", where, str(exc))) from exc
