"""Selects the reader for a claimed file by the format that its source declares."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from cbp.errors import DefinitionError, Mistake
from cbp.model.dataflow.dataflow import SourceNode
from cbp.model.dataflow.source_options import ReadOptions
from controller.ingest.formats.access_log import read_access_log
from controller.ingest.formats.avro_reader import read_avro
from controller.ingest.formats.bad_lines import BadLines
from controller.ingest.formats.compression import decompressed, sniff
from controller.ingest.formats.content import ClaimedContent
from controller.ingest.formats.csv_records import read_csv
from controller.ingest.formats.delta_changes import read_changes
from controller.ingest.formats.jsonl import read_jsonl
from controller.ingest.formats.notes import Notes
from controller.ingest.formats.parquet import read_parquet
from controller.ingest.formats.text import read_text
from controller.ingest.formats.text_blocks import text_blocks
from controller.ingest.formats.xml_records import read_xml
from controller.ingest.limits import IngestLimits
from controller.ingest.rejection import FileRejectedError

__all__ = ["check_options", "read_batches"]


def read_batches(
    content: ClaimedContent,
    source: SourceNode,
    limits: IngestLimits,
    notes: Notes,
    *,
    file: str = "",
) -> Iterator[pa.RecordBatch]:
    """Yield the file's records with the source's schema, in the file's order.

    Either every record is yielded, or an error is raised that lists up to 100 wrong lines. After
    an error the caller must discard the records that were yielded. Where the source puts wrong
    records aside, the others are yielded; `notes` has those at the end.

    Args:
        content: The claimed copy.
        source: What it declares.
        limits: What the file may cost.
        notes: Collects remarks.
        file: Name of the file as it was dropped.

    Raises:
        FileRejectedError: The file does not match what the source declares.
        OSError: The device failed.
    """
    bad, records = BadLines(source.on_bad_records), 0
    options = ReadOptions.parse(source.format, source.options)
    try:
        for batch in _batches(content, source, options, limits, notes, bad, file):
            records += batch.num_rows
            yield batch
    except FileRejectedError as error:
        raise bad.joined(error) from error
    notes.rejected = bad.end(records)
    if source.format != "delta":  # its rows are of many files
        notes.lines = tuple(bad.lines.pairs)


def _batches(
    content: ClaimedContent,
    source: SourceNode,
    options: ReadOptions,
    limits: IngestLimits,
    notes: Notes,
    bad: BadLines,
    file: str,
) -> Iterator[pa.RecordBatch]:
    if source.format == "parquet":
        return read_parquet(content, source.schema, options.rules, limits, notes, bad)
    if source.format == "delta":
        return read_changes(content, source, options, limits, notes, bad)
    if source.format == "avro":
        return read_avro(content, source.schema, options.rules, limits, notes, bad)
    return _of_lines(content, source, options, limits, notes, bad, file)


def _of_lines(
    content: ClaimedContent,
    source: SourceNode,
    options: ReadOptions,
    limits: IngestLimits,
    notes: Notes,
    bad: BadLines,
    file: str,
) -> Iterator[pa.RecordBatch]:
    """Yield the records of a format that is text."""
    compression = sniff(content)
    notes.compression = compression
    chunks = decompressed(content, compression, limits)
    if source.format == "xml":
        return read_xml(chunks, source.schema, options, limits=limits, notes=notes, bad=bad)
    blocks = text_blocks(
        chunks,
        line_bytes_max=limits.line_bytes_max,
        bad=bad,
        encoding=options.lines.encoding,
        lines_alone=source.format != "csv" or not options.csv.quote,
    )
    schema, rows = source.schema, limits.batch_rows
    if source.format == "jsonl":
        return read_jsonl(blocks, schema, options.rules, limits=limits, notes=notes, bad=bad)
    if source.format == "csv":
        return read_csv(blocks, schema, options, limits=limits, notes=notes, bad=bad)
    read = read_text if source.format == "text" else read_access_log
    return read(blocks, schema, options, file=file, batch_rows=rows, notes=notes, bad=bad)


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
