"""Operating errors: disks, leases, Spark, time limits, busy dataflows, unknown names.

Guaranteed: `retryable` says whether the same call can succeed later.
Absent on purpose: errors about tables; see `tables`.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from cbp.errors.base import CbpError
from cbp.errors.counts import format_count


class OperatingError(CbpError, code="operating_failure", retryable=True):
    """The environment failed: another attempt later, or after a repair, can succeed."""

    bounded: ClassVar[bool] = False
    """Whether a failed run is retried only a bounded number of times, since it can be the cause."""


class LogConflictError(OperatingError, code="log_conflict", retryable=False):
    """Another controller wrote the log entry that this one was about to write."""

    def __init__(self, path: str) -> None:
        message = f"another controller wrote {path}. So this controller no longer leads, and stops"
        super().__init__(message, path=path)


class LeaseLostError(OperatingError, code="lease_lost"):
    """This controller does not lead, or does not know whether it still does."""

    def __init__(self, epoch: int | None, why: str) -> None:
        message = f"nothing was written, because this controller {_standing(epoch)}: {why}"
        super().__init__(message, epoch=epoch, why=why)


class DiskFullError(OperatingError, code="disk_full"):
    """No space was left while writing; nothing was published."""

    def __init__(self, path: str) -> None:
        message = f"no space left on the device that holds {path}; free some space there"
        super().__init__(message, path=path)

    @staticmethod
    def is_disk_full(exc: OSError) -> bool:
        """Return whether an error means no space or no quota; Arrow may keep only its text."""
        if exc.errno is not None:
            return exc.errno in (errno.ENOSPC, errno.EDQUOT)
        return any(os.strerror(code) in str(exc) for code in (errno.ENOSPC, errno.EDQUOT))


class SparkJobError(OperatingError, code="spark_job_failed"):
    """Spark could not do a run's job, perhaps because of the run: a worker may have died."""

    bounded = True

    def __init__(self, run: str, text: str) -> None:
        super().__init__(f"the Spark job of run {run} failed: {text}", run=run)


class WorkerEndedError(OperatingError, code="worker_ended"):
    """A Python worker ended without an answer, so no line of author's code is known."""

    bounded = True

    def __init__(self, run: str, *, stages: Sequence[str], cause: str = "") -> None:
        reason = f" ({cause})" if cause else ""
        ran = f"stage{'s' if len(stages) > 1 else ''} {', '.join(stages)}"
        message = (
            f"run {run} failed: the Python worker that ran {ran} ended without an "
            f"answer{reason}. Either the code of a stage ended the process "
            "(os._exit, or a crash in C), or the machine killed the process, for example because "
            "memory ran out: see the system log"
        )
        super().__init__(message, run=run, stages=[*stages], cause=cause)


class SparkLostError(OperatingError, code="spark_lost"):
    """Spark does not answer, or has stopped; no run is the cause."""

    def __init__(self, text: str) -> None:
        message = (
            f"Spark no longer answers: {text}. The service retries runs until Spark answers again. "
            "If Spark's process has ended, restart the service"
        )
        super().__init__(message, cause=text)


class SparkUnstartedError(OperatingError, code="spark_unstarted"):
    """Spark could not be started; the next run starts it again."""

    def __init__(self, text: str) -> None:
        message = (
            f"Spark could not be started: {text}. Spark needs Java 17 or newer (JAVA_HOME). To "
            "download Delta's jars, its first start also needs network access. `cbp doctor` checks "
            "both"
        )
        super().__init__(message, cause=text)


class EngineStartingError(OperatingError, code="engine_starting"):
    """The engine is starting; requests that do not need it are answered meanwhile."""

    def __init__(self, waits_for: str) -> None:
        message = f"the service is not ready, since it waits for {waits_for}"
        super().__init__(message, waits_for=waits_for)


class AddressSpaceError(OperatingError, code="address_space_bounded", retryable=False):
    """A process has too little address space to read the records that a task has spilled."""

    def __init__(self, size: int) -> None:
        message = (
            f"a task spilled {size:,} bytes of an input to disk, but the address space of its "
            "process is too small to read them back. Raise spark.executor.pyspark.memory, or "
            "remove that setting and limit executors by spark.executor.memoryOverhead"
        )
        super().__init__(message, bytes=size, setting="spark.executor.pyspark.memory")


class RunTooLargeError(OperatingError, code="run_too_large", retryable=False):
    """A loop within a run, or the one call of a whole run, would hold too many bytes.

    `superstep` is the one in which a loop of messages reached the limit, from 1; `None` for the
    call of a whole run. With `on_disk`, the bytes are in temporary files, not in memory.
    """

    def __init__(
        self,
        stage: str,
        most: int,
        holds: int,
        superstep: int | None = None,
        *,
        on_disk: bool = False,
    ) -> None:
        if superstep is None:
            where = "for a single call with all input and output"
            instead = "use a stage that is called group by group"
        else:
            where = f"for the messages and changes up to superstep {superstep:,} of its loop"
            instead = (
                "declare its loopbacks with supersteps=1: each superstep is then an epoch, and its "
                "messages are stored in files"
            )
        if on_disk:
            kind = "in temporary files"
            more = "If the folder of temporary files (TMPDIR) has more space"
        else:
            kind = "in memory"
            more = (
                "To hold these bytes, the task needs about eight times as much memory. If the "
                "machine has that much"
            )
        super().__init__(
            f"a run of {stage!r} needs {holds:,} bytes {kind} {where}, but the limit is "
            f"{most:,} bytes. {more}, raise CBP_WHOLE_RUN_BYTES_MAX. Otherwise split the input "
            f"into smaller files, or {instead}",
            stage=stage,
            bytes=holds,
            bytes_max=most,
            superstep=superstep,
            on_disk=on_disk,
            setting="CBP_WHOLE_RUN_BYTES_MAX",
        )


class RunCancelledError(OperatingError, code="run_cancelled"):
    """The run was cancelled before it was prepared."""

    def __init__(self, run: str) -> None:
        super().__init__(f"run {run} was cancelled", run=run)


class RunStackUnseenError(OperatingError, code="run_stack_unseen", retryable=False):
    """The stack of a run cannot be shown, because Spark executes it, and not resident workers."""

    def __init__(self, run: str) -> None:
        message = (
            f"run {run} is a Spark job, and the service cannot ask Spark's processes for their "
            "stacks. For SQL, and while Spark plans a job, open Spark's own web page: Executors, "
            "Thread Dump. For code in Python, run `py-spy dump --pid PID` on the machine of each "
            "executor, for the processes named cbp.engine.spark.daemon. Or let the workers write "
            "their stacks into the output of their executor: set "
            "spark.python.worker.tracebackDumpIntervalSeconds to 10 in CBP_SPARK_CONF, and "
            "restart the service"
        )
        super().__init__(message, run=run)


class RunGaveWayError(OperatingError, code="run_gave_way"):
    """A long run was cancelled, so that another dataflow could run; its epoch runs again.

    It had run for `seconds` while the dataflow `to` waited for a slot.
    """

    def __init__(self, run: str, *, stage: str, seconds: float, to: str) -> None:
        message = (
            f"run {run} of {stage!r} had not ended after {seconds:.0f} s while {to!r} waited for "
            "a slot, so the run was cancelled. Nothing is lost: its epoch runs again with at most "
            "half of the engine's slots, while other dataflows can use the rest. If the run hangs, "
            "fix the translator. If the run has much to do, use smaller increments or more slots, "
            "or raise CBP_SLOW_RUN_SECONDS"
        )
        super().__init__(message, run=run, stage=stage, seconds=seconds, to=to)


class DataflowBusyError(OperatingError, code="dataflow_busy"):
    """A dataflow is busy and cannot be changed now; nothing was changed."""

    def __init__(self, dataflow: str, why: str) -> None:
        message = f"{dataflow!r} is busy: {why}; try again later"
        super().__init__(message, dataflow=dataflow, why=why)


class CorrectionUnfinishedError(OperatingError, code="correction_unfinished"):
    """A correction is recorded, but not complete yet; it must not be sent again."""

    def __init__(self, dataflow: str, stage: str) -> None:
        message = (
            f"the correction of {dataflow}.{stage} was recorded, but could not be completed now. "
            "Do not send it again: the service completes it. `cbp status` shows why this takes "
            f"longer, and `cbp edit {dataflow} --list` shows the correction once it is complete"
        )
        super().__init__(message, dataflow=dataflow, stage=stage)


class DataflowFailedError(OperatingError, code="dataflow_failed"):
    """An unforeseen failure in one dataflow; the other dataflows continue."""

    def __init__(self, dataflow: str, *, doing: str, cause: str, place: str) -> None:
        message = (
            f"{dataflow!r} could not be {doing}: {cause} (at {place}). Other dataflows are not "
            "affected, and the service retries this one; to retry at once, run `cbp resume "
            f"{dataflow}`. The service's log has the traceback. `cbp doctor` looks for damaged "
            "files"
        )
        super().__init__(message, dataflow=dataflow, doing=doing, cause=cause, place=place)


class RollbackImpossibleError(OperatingError, code="rollback_impossible"):
    """A dataflow cannot be rolled back to the requested point; nothing was changed."""

    def __init__(self, dataflow: str, why: str, **more: Any) -> None:
        message = f"{dataflow!r} cannot be rolled back to that point: {why}"
        super().__init__(message, dataflow=dataflow, why=why, **more)


class ReplaceRefusedError(OperatingError, code="replace_refused", retryable=False):
    """A file cannot be replaced or retracted; nothing was changed."""

    def __init__(
        self, dataflow: str, source: str, why: str, stages: Mapping[str, str] | None = None
    ) -> None:
        rebuild = (
            ". Or repeat the command with --then-rebuild (REST: rebuild=true): the service then "
            "accepts the file, and stages that cannot apply it stop until a rebuild has swapped in "
            "new tables. The command starts that rebuild; over REST, request it yourself"
        )
        offered = stages and all(reader.startswith("stages.") for reader in stages)
        message = (
            f"no file of source {source!r} of {dataflow!r} can be replaced: {why}. Instead, remove "
            f"the file with `cbp rollback {dataflow} --to POINT --without FILE`, and then drop the "
            f"corrected file{rebuild if offered else ''}"
        )
        super().__init__(
            message, dataflow=dataflow, source=source, why=why, stages=dict(stages or {})
        )


class ReplacementUnfollowedError(OperatingError, code="replacement_unfollowed", retryable=False):
    """A stage cannot apply a replaced file; it waits until its tables are rebuilt."""

    def __init__(self, dataflow: str, stage: str, why: str) -> None:
        message = (
            f"stage {stage!r} cannot apply a file that was replaced or retracted: {why}. Its "
            "tables stay as they are, and newer input waits, until you rebuild all tables from the "
            f"current files with `cbp rebuild {dataflow}`"
        )
        super().__init__(message, dataflow=dataflow, stage=stage, why=why)


class RecordsAbsentError(OperatingError, code="records_absent", retryable=False):
    """Records that a replacement removes are not among the kept records."""

    def __init__(self, stage: str, input_: str, records: int, increments: Sequence[int]) -> None:
        numbers = ", ".join(map(str, increments))
        one = len(increments) == 1
        removing = f"increment {numbers} removes" if one else f"increments {numbers} remove"
        message = (
            f"stage {stage!r}, input {input_!r}: {removing} "
            f"{format_count(records, 'record')} that no earlier increment has. A roll-back "
            "dropped the earlier increments, or they are no longer kept. Nothing was changed. "
            "Undo the replacement with `cbp rollback DATAFLOW --to POINT --without FILE`, or "
            f"rebuild the stage with `cbp backfill DATAFLOW {stage}`"
        )
        super().__init__(
            message, stage=stage, input=input_, records=records, increments=list(increments)
        )


class RebuildIncompleteError(OperatingError, code="rebuild_incomplete", retryable=False):
    """Some dataflows could not be rebuilt from their folders; the others were rebuilt."""

    def __init__(self, rebuilt: Sequence[str], failed: Mapping[str, CbpError]) -> None:
        causes = "; ".join(f"{name}: {error.message}" for name, error in failed.items())
        super().__init__(
            f"{format_count(len(failed), 'dataflow')} could not be restored: {causes}. "
            f"Fix {'the cause' if len(failed) == 1 else 'the causes'}, then run `cbp recover "
            "--rebuild` again",
            rebuilt=list(rebuilt),
            failed={name: error.as_dict() for name, error in failed.items()},
        )


class TimeLimitError(OperatingError, code="time_limit", retryable=False):
    """An author's code took longer than the operator allows; its stage stops."""

    def __init__(self, what: str, seconds: float, *, code: str) -> None:
        message = (
            f"{what} did not end within {seconds:g} s and was abandoned: {code} hangs, or needs "
            "more time. Fix the code, or raise CBP_RUN_SECONDS_MAX; then run `cbp resume DATAFLOW`"
        )
        super().__init__(message, what=what, seconds=seconds, code=code)


class SparkSettingError(OperatingError, code="spark_setting_unsafe", retryable=False):
    """Spark runs with a setting under which a retried stage can produce different records."""

    def __init__(self, setting: str, *, found: str, expected: str) -> None:
        message = (
            f"Spark runs with {setting}={found}, but the engine needs {expected}: with another "
            "value, a retried Spark stage could lose or duplicate records. Remove the setting "
            "from Spark's options, and do not start a Spark session before the service starts its "
            "own"
        )
        super().__init__(message, setting=setting, found=found, expected=expected)


class SparkUnauthenticatedError(OperatingError, code="spark_unauthenticated", retryable=False):
    """A cluster's master would be used without a secret."""

    def __init__(self, master: str, why: str) -> None:
        message = (
            f"the Spark master {master} is refused: {why}. Without a secret, anyone who reaches a "
            "port of the driver or of an executor could run code. Give master, workers and "
            "service the same secret: SPARK_SECRET_FILE of deploy/entrypoint.sh, or "
            "spark.authenticate=true and spark.authenticate.secret in spark-defaults.conf of "
            "each. YARN and Kubernetes generate a secret themselves, unless spark.authenticate is "
            "false"
        )
        super().__init__(message, master=master, why=why)


class NotFoundError(OperatingError, code="not_found", retryable=False):
    """A name, key or table does not exist.

    `kind` is such as `dataflow`; `hint` says what exists instead, or what to do.
    """

    def __init__(self, kind: str, name: str, *, hint: str = "") -> None:
        more = f"; {hint}" if hint else ""
        super().__init__(f"there is no {kind} {name!r}{more}", kind=kind, name=name)


class AlreadyExistsError(OperatingError, code="already_exists", retryable=False):
    """A name is taken already."""

    def __init__(self, kind: str, name: str) -> None:
        step = "choose another name, or change the existing one"
        if kind == "dataflow":
            step += f": `cbp register FILE` makes a new version, `cbp delete {name}` removes it"
        super().__init__(f"there is a {kind} {name!r} already; {step}", kind=kind, name=name)


class DataflowsTooManyError(OperatingError, code="dataflows_too_many", retryable=False):
    """The service has reached its limit of dataflows."""

    def __init__(self, name: str, *, most: int) -> None:
        message = (
            f"{name!r} was not registered: this service already has {most} dataflows, which is "
            "its limit. Delete a dataflow, or raise CBP_DATAFLOWS_MAX and restart the service"
        )
        super().__init__(message, name=name, most=most)


class FlowUnframedError(OperatingError, code="flow_unframed", retryable=False):
    """The frames of a flow cannot be closed, because no stage reads it in frames."""

    def __init__(self, flow: str, framed: Sequence[str]) -> None:
        message = (
            f"no stage reads the flow {flow!r} in frames, so there is no frame to close; flows "
            f"that are read in frames: {', '.join(framed) or 'none'}"
        )
        super().__init__(message, flow=flow, framed=list(framed))


def _standing(epoch: int | None) -> str:
    return "does not lead" if epoch is None else f"no longer leads (its lease had epoch {epoch})"
