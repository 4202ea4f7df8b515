"""The limits of an engine: sizes from which it cuts, spills, merges or works in parallel.

An engine is constructed with one `EngineLimits`. It passes them to its readers and, in the plan of
each run, to the tasks, also in other processes (`cbp.engine.task.task_plan`). Tests make limits
small, so that few records reach them. What is part of a format or of an algorithm is a constant in
its module.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """The limits of one engine: how much is in memory, a file or a task. None changes a result.

    Attributes:
        rows_per_task: Records of an increment, or called groups, that justify one more task.
        rows_per_task_sql: The same for SQL, where a plan without a shuffle saves more time.
        rows_per_record_task: Records of a record-wise stage that justify another task.
        rows_per_loop_task: Records, as estimated before a loop within a run, that justify another
            task of the loop. Each superstep costs a task an exchange of messages.
        loop_reach: Maximum number of state records that each record which arrives is assumed to
            reach.
        then_rows: Records up to which a record-wise task also runs the groupwise stage downstream
            of it. For more, a job of several tasks saves more time than its start costs.
        arranged_reads: Records times tasks up to which every task reads the whole increment;
            beyond, Spark shuffles, which is faster with many tasks: with two, 100 k records take
            1.05 s shuffled and 0.59 s unshuffled, 1 M take 6.4 and 4.4 s.
        arranged_bytes: Bytes of an increment's files up to which every task reads all of it.
        resident_after_runs: Small runs after which resident workers are started, for a second of
            processor time each; counted again after one was lost, or ended because it was idle.
        slices_per_expression: Slices of files in one expression of Spark; more make it slow.
        window_rows: Records that are Python objects at a time; more do not fit the CPU's caches.
        window_bytes: Bytes of these; for rows below 4 KB, `window_rows` is the limit.
        large_group_rows: Records of one input or state of a group, above which they are read in
            chunks of this size.
        call_rows: Records, over all flows, of the groups of one call on tables (at least one
            group): enough to make the cost of a call negligible, few enough to be copied.
        call_bytes: Bytes of these; for rows below 512 bytes, `call_rows` is the limit.
        whole_run_bytes: Bytes in memory of the records that the one call of a whole run reads and
            puts, or that a loop of messages holds; its task needs about eight times as much. Beyond
            half of it, records go to mapped temporary files (`cbp.engine.storage.held_records`). A
            quarter of it may stay in memory between runs.
        whole_run_spill: Limit of such files for a run, as a multiple of `whole_run_bytes`; a run
            that needs more is refused. With 0 there are none, and the limit is `whole_run_bytes`.
        superstep_log_ms: Minimum time in milliseconds between two snapshots of a loop; 0: one after
            each superstep.
        microsteps: Maximum number of microsteps of a task between two exchanges of a loop.
        microstep_rows: Maximum number of messages that a task sends in its microsteps between two
            exchanges. Beyond that, calls that other tasks' messages make useless would cost more
            than an exchange.
        jvm_batch_bytes: Bytes of a batch for the JVM, of at least one record.
        settings_rows: Maximum number of records of a table that goes to every group as a whole.
        remote_bytes: Bytes of remote writes in memory per state; sorting needs three times as much.
        inline_deletes_bytes: Bytes of a state's bitmaps of deleted rows that are stored in the
            intention itself, over all tasks of a run; larger bitmaps go to files.
        message_block_bytes: Bytes of messages that a task sorts by bucket at a time; this takes
            about three times as much memory.
        message_group_rows_min: Small buckets share a row group of at least this many messages: a
            row group costs some 100 bytes.
        message_group_rows_max: Messages of a row group; a reader reads as many at a time.
        message_sort_bytes: Bytes of messages that a reading task sorts in memory at a time.
        message_rows_min: Messages from which a file is sorted by bucket; with fewer, each task
            reads the whole file at no extra cost.
        spool_bytes: A flow's records above this size go to disk; two flows and their windows fit
            in a small worker.
        narrow_bytes: Bytes of a flow's records above which its strings have offsets of 64 bits;
            small files can exceed this, since repeated strings are compressed away.
        sort_run_bytes: Bytes that an external sort sorts at a time; this takes three times as much
            memory.
        sort_block_bytes: Bytes of each run in memory while an external sort merges runs: a hundred
            runs need 50 MB.
        checkpoint_entries: Entries of a table's log after which a checkpoint is written.
        state_fanout: Files of a bucket's lowest tier that start a merge.
        state_tier_rows: Records of a file of state up to which it belongs to the lowest tier.
        listed_rows: Records of a group's kept state that can be listed in the time of one search.
            Once the searches of a call have taken as long as listing all records, all are listed.
        named_rows: Records of a window from which its first look-up finds all kept records that
            the window's inputs name.
        timers_ahead: Timers of a file that are sorted by time beyond the due ones; 16 bytes each.
        merge_rows: Records of each piece in which files of state are merged.
        small_file_rows: Records up to which a file of state gets no index copy: reading it is as
            fast.
        file_rows: Maximum number of records in a file of state: a file is read, copied and merged
            completely.
        file_bytes: Maximum number of bytes of such a file in Arrow; a task needs three times as
            much.
        beside_bytes: Bytes from which a whole run writes a file of state in a thread, while it
            finds the records of the next file, and settles the two halves of the buckets in
            parallel.
        read_rows: Records that a reader converts to Python objects at a time.
        read_bytes: Bytes of these records; as Python objects they take several times as much.
        pending_rows: Records of a large group, read or emitted, that wait in memory for an equal
            record of the other side: about 80 MB. Further records go to disk.
        spill_partitions: Number of parts into which these are cut on disk; each fits in memory.
        spill_block_rows: Records that are written to such a part together.
        compared_rows: Records of each part into which a comparison cuts two tables.
        output_fanout: Neighboring files of similar size in an output that start a merge, and runs
            between two searches for such files.
        copy_block_bytes: Bytes of an index copy under one checksum; a copy with blocks of another
            size is rebuilt.
        whole_copy_bytes: Bytes up to which an index copy is checked when it is opened, in 0.4 ms.
        held_bytes: Bytes of rows without an index copy that a process keeps for its next run: of
            small files, and of files for whose copies there is no space.
    """

    rows_per_task: int = 2_000
    rows_per_task_sql: int = 50_000
    rows_per_record_task: int = 20_000
    rows_per_loop_task: int = 20_000
    loop_reach: int = 16
    then_rows: int = 4_000
    arranged_reads: int = 4_000_000
    arranged_bytes: int = 64 << 20
    resident_after_runs: int = 8
    slices_per_expression: int = 200
    window_rows: int = 16_384
    window_bytes: int = 64 << 20
    large_group_rows: int = 65_536
    call_rows: int = 524_288
    call_bytes: int = 256 << 20
    whole_run_bytes: int = 2 << 30
    whole_run_spill: int = 32
    superstep_log_ms: int = 2_000
    microsteps: int = 256
    microstep_rows: int = 100_000
    jvm_batch_bytes: int = 64 << 20
    settings_rows: int = 65_536
    remote_bytes: int = 32 << 20
    inline_deletes_bytes: int = 256 << 10
    message_block_bytes: int = 32 << 20
    message_group_rows_min: int = 8_192
    message_group_rows_max: int = 131_072
    message_sort_bytes: int = 32 << 20
    message_rows_min: int = 4_096
    spool_bytes: int = 96 << 20
    narrow_bytes: int = (1 << 31) - 1
    sort_run_bytes: int = 32 << 20
    sort_block_bytes: int = 512 << 10
    checkpoint_entries: int = 50
    state_fanout: int = 8
    state_tier_rows: int = 4_096
    listed_rows: int = 64
    named_rows: int = 64
    timers_ahead: int = 16_384
    merge_rows: int = 500_000
    small_file_rows: int = 4_096
    file_rows: int = 4_000_000
    file_bytes: int = 128 << 20
    beside_bytes: int = 4 << 20
    read_rows: int = 16_384
    read_bytes: int = 32 << 20
    pending_rows: int = 262_144
    spill_partitions: int = 128
    spill_block_rows: int = 512
    compared_rows: int = 250_000
    output_fanout: int = 8
    copy_block_bytes: int = 64 << 10
    whole_copy_bytes: int = 4 << 20
    held_bytes: int = 64 << 20

    def rows_per_task_of(self, form: str) -> int:
        """Return how many records justify another task of a translator of this form."""
        return self.rows_per_task_sql if form == "sql" else self.rows_per_task

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle only values that differ from the defaults, since each task carries the limits."""
        own = {each.name: getattr(self, each.name) for each in fields(self)}
        return _limits, ({k: v for k, v in own.items() if v != getattr(DEFAULT_LIMITS, k)},)


DEFAULT_LIMITS = EngineLimits()
"""The limits of an engine that is constructed without any."""


def _limits(changed: dict[str, int]) -> EngineLimits:
    return EngineLimits(**changed)
