"""Writer of one task's state files: new run files, bitmaps of deleted rows, compaction.

    new records         written to run files of their bucket while the author still runs
    deleted records     bitmaps, one per file; a file whose rows are all deleted is dropped
    small files         merged after that (`bucket_compaction`), also in buckets whose groups
                        are not called but which get remote writes
    remote writes       appended to buckets of any task (`RemoteWrites`)

Guaranteed: an existing file is never changed; the results are returned as reports.
Not guaranteed: that a written file is durable; the task syncs all of them together.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from cbp.engine.columnar.key_hash import bucket_shift
from cbp.engine.state.bucket_compaction import compact
from cbp.engine.state.bucket_state import BucketState, LiveFile
from cbp.engine.state.index_cache import IndexCache
from cbp.engine.state.pending_deletes import write_deletes
from cbp.engine.state.run_files import RunFiles, WrittenRun, state_rows
from cbp.engine.storage.engine_limits import EngineLimits
from cbp.engine.storage.files import LocalFiles
from cbp.engine.task.reports import DeletedRows, DroppedFile, MergedFile, NewStateFile, TaskReport
from cbp.engine.task.task_plan import TaskPlan


def new_files(state: str, files: Iterable[WrittenRun]) -> list[NewStateFile]:
    """Return the reports of run files with new records of a state."""
    return [NewStateFile(state, f.bucket, f.path, f.rows, f.size) for f in files]


def is_overdue(live: Sequence[LiveFile], limits: EngineLimits) -> bool:
    """Return whether a bucket with these files is compacted even if none of its groups is called.

    A run that calls groups of a bucket compacts it; a run with only remote writes does not.
    """
    return len(live) >= 2 * limits.state_fanout


class TaskState:
    """The state files of one task.

    Args:
        done: Gets reports of the results.
        written: Gets the full paths of files that are not synced yet.
        counts: Gets `state_written`, `state_removed`, `state_remote` and `bytes_read`.
    """

    def __init__(
        self,
        plan: TaskPlan,
        part: int,
        attempt: str,
        *,
        done: list[TaskReport],
        written: list[str],
        counts: dict[str, float],
    ) -> None:
        self._plan, self._part, self._attempt = plan, part, attempt
        self._done, self._written, self._counts = done, written, counts
        self._deleted: dict[str, dict[str, Any]] = {name: {} for name in plan.states}
        self._remote: dict[str, RemoteWrites] = {}

    def files(
        self, state: str, bucket: int, cache: IndexCache | None, suffix: str = ""
    ) -> RunFiles:
        """Return the new run files of a bucket, with a unique `suffix`."""
        return RunFiles(
            self._plan.states[state],
            bucket=bucket,
            epoch=self._plan.epoch,
            run=f"{self._plan.run}-{self._attempt}{suffix}",
            cache=cache,
            written=self._written,
            limits=self._plan.limits,
            faults=self._plan.faults,
        )

    def finish(self, name: str, state: BucketState, files: Mapping[int, RunFiles]) -> None:
        """Record the deleted rows of some buckets, close their run files, and compact them."""
        deleted = self._deleted[name]
        died = state.deaths()
        for at, bitmap in died.items():
            file = state.files[at]
            self._counts["state_removed"] += len(bitmap)
            if file.dead + len(bitmap) == file.rows:
                self._done.append(DroppedFile(name, file.path, file.size))
            else:
                deleted[file.path] = bitmap
        for bucket, of_bucket in files.items():
            of_bucket.close()
            self._counts["state_written"] += of_bucket.rows
            self._done.extend(new_files(name, of_bucket.done))
            self._compact(name, state, bucket, died, of_bucket)

    def compact_others(self, visited: Collection[int], cache: IndexCache) -> None:
        """Compact this task's overdue buckets whose groups were not called in this run."""
        for name, table in self._plan.states.items():
            for bucket, live in table.live.items():
                if bucket in visited or not is_overdue(live, self._plan.limits):
                    continue
                if self._plan.owner(bucket) == self._part:
                    state = BucketState(table, cache, (bucket,))
                    self._compact(name, state, bucket, {}, self.files(name, bucket, cache))
                    self._counts["bytes_read"] += state.bytes_read

    def write_deletes(self) -> None:
        """Write the bitmaps of all states; large ones go to files."""
        plan = self._plan
        file = f"{plan.epoch:012d}-{self._part:05d}-{plan.run}-{self._attempt}"
        for name, bitmaps in self._deleted.items():
            written = write_deletes(
                plan.states[name].folder,
                file,
                bitmaps,
                inline_bytes_max=plan.limits.inline_deletes_bytes // plan.tasks,
                files=LocalFiles(plan.faults),
            )
            self._done.extend(DeletedRows(name, path, rows) for path, rows in written.items())

    def write_remote(self, state: str, columns: list[pa.Array], cache: IndexCache) -> None:
        """Take state records that a group emitted for other keys (remote writes)."""
        plan = self._plan
        if state not in self._remote:
            self._remote[state] = RemoteWrites(
                plan.buckets,
                open_files=lambda bucket, number: self.files(
                    state, bucket, cache, f"-from{self._part}.{number}"
                ),
                bytes_max=plan.limits.remote_bytes,
            )
        rows = state_rows(plan.spec, plan.spec.state(state), columns, plan.hash_mask)
        self._remote[state].add(rows)

    def close_remote(self) -> None:
        """Write the remaining remote writes."""
        for name, remote in self._remote.items():
            self._done.extend(new_files(name, remote.close()))
            self._counts["state_remote"] += remote.rows
            self._counts["state_written"] += remote.rows

    def _compact(
        self, name: str, state: BucketState, bucket: int, died: Mapping[int, Any], files: RunFiles
    ) -> None:
        merged = compact(state, state.places(bucket), died)
        if merged is not None:
            replaced = [state.files[at] for at in merged.replaces]
            gone = tuple(file.path for file in replaced), sum(file.size for file in replaced)
            for run in files.merge(merged.tables):
                paths, size = gone
                report = MergedFile(name, run.bucket, run.path, run.rows, run.size, paths, size)
                self._done.append(report)
                gone = (), 0  # named by the first file alone


class RemoteWrites:
    """The remote writes of one task to one state: records that its groups emit for other keys.

    The emitting task computes hash and bucket of the key, so nothing is shuffled: it writes one run
    file for each bucket that it wrote to, whichever task owns the bucket. No task reads the file in
    this run; the next run finds it among the live files. So a remote write replaces no record,
    causes no group to be called, and is visible in the next epoch.

    Up to `bytes_max` of records are held, then written: a run that writes more leaves several files
    per bucket, which compaction merges. `open_files` is called with a bucket and a rising number.
    """

    def __init__(
        self, buckets: int, *, open_files: Callable[[int, int], RunFiles], bytes_max: int
    ) -> None:
        self._shift, self._open_files = np.uint64(bucket_shift(buckets)), open_files
        self._held: list[pa.Table] = []
        self._bytes, self._bytes_max = 0, bytes_max
        self._flushes = 0
        self._done: list[WrittenRun] = []
        self.rows = 0

    def add(self, table: pa.Table) -> None:
        """Take records with their hashes, and write all held ones once they exceed `bytes_max`."""
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
        stops = [*starts[1:].tolist(), len(buckets)]
        for bucket, start, stop in zip(present.tolist(), starts.tolist(), stops, strict=True):
            files = self._open_files(bucket, self._flushes)
            files.add(table.slice(start, stop - start))
            files.close()
            self._done.extend(files.done)
        self._flushes += 1
