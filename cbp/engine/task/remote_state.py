"""Remote writes of one task: state records that its groups emit for other keys.

The emitting task computes hash and bucket of the key, so nothing is shuffled: it writes one run
file for each bucket that it wrote to, whichever task owns the bucket. No task reads the file in
this run; the next run finds it among the live files. So a remote write replaces no record,
causes no group to be called, and is visible in the next epoch.

Memory: up to `EngineLimits.remote_bytes` of records are held, then written to files. A run that
writes more leaves several files per bucket, which compaction merges.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from cbp.engine.columnar.key_hash import bucket_shift, hash_columns
from cbp.engine.state.run_files import RunFiles, WrittenRun
from cbp.model.flow.schema import Schema

__all__ = ["RemoteWrites"]


class RemoteWrites:
    """The remote writes of one task to one state; see the module header.

    Attributes:
        rows: Number of records taken so far.

    Args:
        key: The columns of the state that hold the stage's key.
        hash_mask: Applied to every hash.
        open_files: Opens the run files of a bucket; called with the bucket and a number that
            rises.
        bytes_max: Bytes of records that are held before they are written.
    """

    def __init__(
        self,
        key: Schema,
        *,
        buckets: int,
        hash_mask: int,
        open_files: Callable[[int, int], RunFiles],
        bytes_max: int,
    ) -> None:
        self._key, self._shift, self._mask = key, np.uint64(bucket_shift(buckets)), hash_mask
        self._open_files = open_files
        self._held: list[pa.Table] = []
        self._bytes, self._bytes_max = 0, bytes_max
        self._flushes = 0
        self._done: list[WrittenRun] = []
        self.rows = 0

    def add(self, columns: Sequence[pa.Array], schema: pa.Schema) -> None:
        """Take records, and write all held ones once they exceed `bytes_max`.

        Args:
            columns: The state's columns, as they were emitted.
            schema: Schema of the state's files: the columns and the hash.
        """
        names = schema.names[:-1]
        keys = [columns[names.index(name)] for name in self._key.names]
        hashes = hash_columns(keys, [f.type for f in self._key.fields]) & np.int64(self._mask)
        table = pa.Table.from_arrays([*columns, pa.array(hashes)], schema=schema)
        self._held.append(table)
        self._bytes += table.nbytes
        self.rows += table.num_rows
        if self._bytes > self._bytes_max:
            self._flush()

    def close(self) -> list[WrittenRun]:
        """Write the records that are left and return every file."""
        self._flush()
        return self._done

    def _flush(self) -> None:
        if not self._held:
            return
        table = pa.concat_tables(self._held)
        self._held, self._bytes = [], 0
        unsigned = table.column("_hash").to_numpy().view(np.uint64)
        order = np.argsort(unsigned, kind="stable")
        table, buckets = table.take(pa.array(order)), unsigned[order] >> self._shift
        present, starts = np.unique(buckets, return_index=True)
        for bucket, start, stop in zip(
            present.tolist(), starts.tolist(), [*starts[1:].tolist(), len(buckets)], strict=True
        ):
            files = self._open_files(bucket, self._flushes)
            files.add(table.slice(start, stop - start))
            files.close()
            self._done.extend(files.done)
        self._flushes += 1
