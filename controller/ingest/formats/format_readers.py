"""Selects the reader for a claimed file by the format that its source declares."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from cbp.model.dataflow.dataflow import SourceNode
from cbp.model.source.options import ReadOptions
from controller.ingest.formats.access_log import read_access_log
from controller.ingest.formats.avro import read_avro
from controller.ingest.formats.bad_lines import BadLines, Notes, Reading
from controller.ingest.formats.csv_records import read_csv
from controller.ingest.formats.delta import read_changes
from controller.ingest.formats.file_bytes import ClaimedContent, decompressed, sniff
from controller.ingest.formats.jsonl import read_jsonl
from controller.ingest.formats.parquet import read_parquet
from controller.ingest.formats.text import read_text, text_blocks
from controller.ingest.formats.xml_records import read_xml
from controller.ingest.limits import IngestLimits
from controller.ingest.rejection import FileRejectedError

_OF_FILES = {"avro": read_avro, "delta": read_changes, "parquet": read_parquet}
_OF_LINES = {"access_log": read_access_log, "csv": read_csv, "jsonl": read_jsonl, "text": read_text}


def read_batches(
    content: ClaimedContent,
    source: SourceNode,
    limits: IngestLimits,
    notes: Notes,
    *,
    file: str = "",
) -> Iterator[pa.RecordBatch]:
    """Yield the file's records with the source's schema, in the file's order.

    Either every record is yielded, or an error is raised that lists up to 100 wrong lines. After an
    error the caller must discard the records that were yielded. If the source rejects single
    records, the other records are yielded; `notes` has the rejected ones at the end.

    Raises `FileRejectedError`, or `OSError` if the device failed.
    """
    options = ReadOptions.parse(source.format, source.options)
    bad, records = BadLines(source.on_bad_records), 0
    reading = Reading(source.schema, options, limits, notes, bad, file)
    try:
        for batch in _batches(content, source.format, reading):
            records += batch.num_rows
            yield batch
    except FileRejectedError as error:
        raise bad.joined(error) from error
    notes.rejected = bad.end(records)
    if source.format != "delta":  # its rows are of many files
        notes.lines = tuple(bad.lines.pairs)


def _batches(content: ClaimedContent, format_: str, reading: Reading) -> Iterator[pa.RecordBatch]:
    if format_ in _OF_FILES:
        return _OF_FILES[format_](content, reading)
    reading.notes.compression = sniff(content)
    chunks = decompressed(content, reading.notes.compression, reading.limits)
    if format_ == "xml":
        return read_xml(chunks, reading)
    lines_alone = format_ != "csv" or not reading.options.csv.quote
    blocks = text_blocks(chunks, reading, lines_alone=lines_alone)
    return _OF_LINES[format_](blocks, reading)
