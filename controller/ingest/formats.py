"""From a claimed file to record batches, by the format that its source declares."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from cbp.errors import DefinitionError, Mistake
from cbp.model.dataflow import SourceNode
from controller.ingest.content import ClaimedContent, decompressed, sniff
from controller.ingest.delimited import CsvOptions, read_csv
from controller.ingest.jsonl import read_jsonl
from controller.ingest.limits import IngestLimits
from controller.ingest.lines import text_blocks
from controller.ingest.notes import Notes
from controller.ingest.parquet import read_parquet

__all__ = ["check_options", "read_batches"]


def read_batches(
    content: ClaimedContent, source: SourceNode, limits: IngestLimits, notes: Notes
) -> Iterator[pa.RecordBatch]:
    """Yield the file's records with the source's schema, in the file's order.

    Either every record is yielded, or an error is raised at the first that is wrong;
    what was yielded before the error must be thrown away.

    Raises:
        FileRejectedError: The file is not what the source declares.
        OSError: The device failed.
    """
    if source.format == "parquet":
        yield from read_parquet(content, source.schema, limits, notes)
        return
    compression = sniff(content)
    notes.compression = compression
    chunks = decompressed(content, compression, limits)
    blocks = text_blocks(chunks, line_bytes_max=limits.line_bytes_max)
    if source.format == "jsonl":
        yield from read_jsonl(blocks, source.schema, batch_rows=limits.batch_rows, notes=notes)
        return
    yield from read_csv(
        blocks,
        source.schema,
        CsvOptions.parse(source.options),
        batch_rows=limits.batch_rows,
        record_bytes_max=limits.line_bytes_max,
        notes=notes,
    )


def check_options(source: SourceNode) -> None:
    """Check a source's options.

    Raises:
        DefinitionError: Rule `option_invalid`.
    """
    where = f"sources.{source.name}.options"
    if source.format == "csv":
        try:
            CsvOptions.parse(source.options)
        except ValueError as exc:
            raise DefinitionError(Mistake("option_invalid", where, str(exc))) from exc
    elif source.options:
        message = f"{source.format} has no options; got {', '.join(sorted(source.options))}"
        raise DefinitionError(Mistake("option_invalid", where, message))
