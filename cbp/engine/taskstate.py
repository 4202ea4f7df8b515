"""What one task does to the files of its states: writes, marks deleted rows, merges.

    new records       run files of their bucket, while the author still runs
    records that died  bitmaps, per file; a file of which all are dead is dropped
    few rows per file  are merged behind that (`state.compaction`), also in buckets that
                      nobody calls but others write to
    records for others  appended to buckets of any task (`remote`)

Guaranteed: a file that was there is never changed; what was done leaves as descriptors.
Not guaranteed: that a written file is durable; the task syncs all at once.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any

import pyarrow as pa

from cbp.engine.bucket import state_file_schema
from cbp.engine.files import LocalFiles
from cbp.engine.remote import RemoteWrites
from cbp.engine.runfiles import RunFiles
from cbp.engine.state.bucket import BucketState, LiveFile
from cbp.engine.state.compaction import FANOUT, compact
from cbp.engine.state.deletes import INLINE_BYTES_MAX, write_deletes
from cbp.engine.state.index import IndexCache
from cbp.engine.taskplan import TaskPlan

__all__ = ["TaskState", "dropped", "is_overdue"]

OVERDUE_FILES = 2 * FANOUT
"""Live files of a bucket from which it is compacted by a run that does not touch it.

A run that touches a bucket compacts it; one that only writes to it from afar does not.
"""

Descriptor = dict[str, Any]


def dropped(state: str, file: LiveFile) -> Descriptor:
    """Describe a data file of a state that is live no longer."""
    return {"kind": "drop", "state": state, "path": file.path, "bytes_dropped": file.size}


def is_overdue(live: Sequence[LiveFile]) -> bool:
    """Tell whether a bucket with these files is compacted though no group of it is called."""
    return len(live) >= OVERDUE_FILES


class TaskState:
    """The state files of one task.

    Args:
        plan: Of the run.
        part: Number of the task; in the files' names.
        attempt: Of the task; in the files' names.
        done: Takes descriptors of what was done.
        written: Takes the full paths of files that are not synced yet.
        counts: Takes `state_written`, `state_removed`, `state_remote` and `bytes_read`.
    """

    def __init__(
        self,
        plan: TaskPlan,
        part: int,
        attempt: str,
        *,
        done: list[Descriptor],
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
        """Return the run files of a bucket, none of them written yet.

        Args:
            state: Its name.
            bucket: Of the state.
            cache: Where index copies are kept; `None`: nowhere.
            suffix: Sets them apart from others of this task and bucket.
        """
        return RunFiles(
            self._plan.states[state],
            state=state,
            bucket=bucket,
            epoch=self._plan.epoch,
            run=f"{self._plan.run}-{self._attempt}{suffix}",
            cache=cache,
            written=self._written,
            faults=self._plan.faults,
        )

    def finish(self, name: str, state: BucketState, files: Mapping[int, RunFiles]) -> None:
        """Note what died in some buckets, close their run files, and merge what is due."""
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
            self._done.extend(of_bucket.done)
            self._compact(state, bucket, died, of_bucket)

    def compact_others(self, visited: Collection[int], cache: IndexCache) -> None:
        """Compact buckets of this task that nobody calls any more, but others write to."""
        for name, table in self._plan.states.items():
            for bucket, live in table.live.items():
                if bucket in visited or not is_overdue(live):
                    continue
                if self._plan.owner(bucket) == self._part:
                    state = BucketState(table, cache, (bucket,))
                    self._compact(state, bucket, {}, self.files(name, bucket, cache))
                    self._counts["bytes_read"] += state.bytes_read

    def write_deletes(self) -> None:
        """Write the bitmaps of all states, those that are large to files."""
        plan = self._plan
        file = f"{plan.epoch:012d}-{self._part:05d}-{plan.run}-{self._attempt}"
        for name, bitmaps in self._deleted.items():
            written = write_deletes(
                plan.states[name].folder,
                file,
                bitmaps,
                inline_bytes_max=INLINE_BYTES_MAX // plan.tasks,
                files=LocalFiles(plan.faults),
            )
            for path, deletes in written.items():
                self._done.append(
                    {"kind": "deletes", "state": name, "path": path, "deletes": deletes.to_json()}
                )

    def write_remote(self, state: str, columns: list[pa.Array], cache: IndexCache) -> None:
        """Take records of a state that a group wrote for other keys."""
        plan = self._plan
        spec = plan.spec.state(state)
        if state not in self._remote:
            self._remote[state] = RemoteWrites(
                plan.spec.key_of(spec),
                buckets=plan.buckets,
                hash_mask=plan.hash_mask,
                open_files=partial(self._remote_files, state, cache),
            )
        self._remote[state].add(columns, state_file_schema(spec))

    def close_remote(self) -> None:
        """Write what is left of the records for other keys."""
        for remote in self._remote.values():
            self._done.extend(remote.close())
            self._counts["state_remote"] += remote.rows
            self._counts["state_written"] += remote.rows

    def _remote_files(self, state: str, cache: IndexCache, bucket: int, number: int) -> RunFiles:
        return self.files(state, bucket, cache, f"-from{self._part}.{number}")

    def _compact(
        self, state: BucketState, bucket: int, died: Mapping[int, Any], files: RunFiles
    ) -> None:
        merged = compact(state, state.places(bucket), died)
        if merged is not None:
            replaced = [state.files[at] for at in merged.replaces]
            self._done.extend(files.merge(merged.tables, replaced))
