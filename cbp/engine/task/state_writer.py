"""Writer of one task's state files: new run files, bitmaps of deleted rows, compaction.

    new records         written to run files of their bucket while the author still runs
    deleted records     bitmaps, one per file; a file whose rows are all deleted is dropped
    small files         merged after that (`state.compaction`), also in buckets whose groups
                        are not called but which get remote writes
    remote writes       appended to buckets of any task (`remote_state`)

Guaranteed: an existing file is never changed; the results are returned as reports.
Not guaranteed: that a written file is durable; the task syncs all of them at once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import pyarrow as pa

from cbp.engine.state.bucket_state import BucketState, LiveFile
from cbp.engine.state.compaction import compact
from cbp.engine.state.index_cache import IndexCache
from cbp.engine.state.pending_deletes import write_deletes
from cbp.engine.state.run_files import RunFiles, WrittenRun, state_file_schema
from cbp.engine.storage.engine_limits import EngineLimits
from cbp.engine.storage.files import LocalFiles
from cbp.engine.task.remote_state import RemoteWrites
from cbp.engine.task.reports import (
    DeletedRows,
    DroppedFile,
    MergedFile,
    NewStateFile,
    TaskReport,
)
from cbp.engine.task.task_plan import TaskPlan

__all__ = ["TaskState", "dropped", "is_overdue", "new_files"]


def dropped(state: str, file: LiveFile) -> DroppedFile:
    """Return the report of a state's data file that is no longer live."""
    return DroppedFile(state, file.path, file.size)


def new_files(state: str, files: Iterable[WrittenRun]) -> list[NewStateFile]:
    """Return the reports of run files with new records of a state."""
    return [NewStateFile(state, f.bucket, f.path, f.rows, f.size) for f in files]


def is_overdue(live: Sequence[LiveFile], limits: EngineLimits) -> bool:
    """Tell whether a bucket with these files is compacted even if none of its groups is called.

    A run that calls groups of a bucket compacts it; a run with only remote writes does not.
    """
    return len(live) >= 2 * limits.state_fanout


class TaskState:
    """The state files of one task.

    Args:
        plan: The plan of the run.
        part: The task's number; part of the file names.
        attempt: The task's attempt; part of the file names.
        done: List to which reports of the results are added.
        written: List to which the full paths of files that are not synced yet are added.
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
        """Return the run files of a bucket; none of them is written yet.

        Args:
            state: Name of the state.
            bucket: The state's bucket.
            cache: Where index copies are kept; `None` means that no copies are made.
            suffix: Distinguishes these files from others of this task and bucket.
        """
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
                self._done.append(dropped(name, file))
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
        spec = plan.spec.state(state)
        if state not in self._remote:
            self._remote[state] = RemoteWrites(
                plan.spec.key_of(spec),
                buckets=plan.buckets,
                hash_mask=plan.hash_mask,
                open_files=partial(self._remote_files, state, cache),
                bytes_max=plan.limits.remote_bytes,
            )
        self._remote[state].add(columns, state_file_schema(spec))

    def close_remote(self) -> None:
        """Write the remaining remote writes."""
        for name, remote in self._remote.items():
            self._done.extend(new_files(name, remote.close()))
            self._counts["state_remote"] += remote.rows
            self._counts["state_written"] += remote.rows

    def _remote_files(self, state: str, cache: IndexCache, bucket: int, number: int) -> RunFiles:
        return self.files(state, bucket, cache, f"-from{self._part}.{number}")

    def _compact(
        self,
        name: str,
        state: BucketState,
        bucket: int,
        died: Mapping[int, Any],
        files: RunFiles,
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
