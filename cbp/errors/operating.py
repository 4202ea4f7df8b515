"""The world failed, or does not allow it now: disks, leases, limits, names.

Guaranteed: `retryable` says whether the same call can succeed later.
Absent on purpose: what is wrong with a table; see `tables`.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping, Sequence
from typing import Any

from cbp.errors.base import CbpError

__all__ = [
    "AddressSpaceError",
    "AlreadyExistsError",
    "DataflowBusyError",
    "DiskFullError",
    "FlowUnframedError",
    "LeaseLostError",
    "LogConflictError",
    "NotFoundError",
    "OperatingError",
    "RebuildIncompleteError",
    "RollbackImpossibleError",
    "RunCancelledError",
    "RunGaveWayError",
    "SparkSettingError",
    "TimeLimitError",
]


class OperatingError(CbpError):
    """The world failed: trying again later, or after a repair, can help."""

    code = "operating_failure"
    retryable = True


class LogConflictError(OperatingError):
    """Another controller wrote the log entry that this one was about to write."""

    code = "log_conflict"
    retryable = False

    def __init__(self, path: str) -> None:
        super().__init__(
            f"{path} was written by another controller: this one no longer leads and stops",
            path=path,
        )


class LeaseLostError(OperatingError):
    """This controller does not lead, or does not know whether it still does."""

    code = "lease_lost"

    def __init__(self, epoch: int | None, why: str) -> None:
        super().__init__(
            f"nothing was written: this controller {_standing(epoch)}; {why}", epoch=epoch, why=why
        )


class DiskFullError(OperatingError):
    """No space was left while writing; nothing was published."""

    code = "disk_full"

    def __init__(self, path: str) -> None:
        super().__init__(f"no space left on the device that holds {path}", path=path)

    @staticmethod
    def is_told_by(exc: OSError) -> bool:
        """Tell whether no space, or no quota, is left; Arrow may keep only the text of it."""
        if exc.errno is not None:
            return exc.errno in (errno.ENOSPC, errno.EDQUOT)
        return any(os.strerror(code) in str(exc) for code in (errno.ENOSPC, errno.EDQUOT))


class AddressSpaceError(OperatingError):
    """A process may not map what a task has put aside, and its memory does not hold it either."""

    code = "address_space_bounded"
    retryable = False

    def __init__(self, size: int) -> None:
        super().__init__(
            f"a task put {size} bytes of an input aside and may neither map nor hold them: the "
            "address space of its process is bounded; raise spark.executor.pyspark.memory, or "
            "leave it out, and bound executors by spark.executor.memoryOverhead instead",
            bytes=size,
            setting="spark.executor.pyspark.memory",
        )


class RunCancelledError(OperatingError):
    """The run was cancelled before it was prepared."""

    code = "run_cancelled"

    def __init__(self, run: str) -> None:
        super().__init__(f"run {run} was cancelled", run=run)


class RunGaveWayError(OperatingError):
    """A run went on for long while another dataflow could not run: its epoch runs again."""

    code = "run_gave_way"

    def __init__(self, run: str, *, stage: str, seconds: float, to: str) -> None:
        super().__init__(
            f"run {run} of {stage!r} had not ended after {seconds:.0f} s and left {to!r} no room: "
            "it gave way, and its epoch runs again in the narrow place, with at most half of the "
            "engine's slots; nothing is lost. Should it hang, mend the translator; should it have "
            "much to do, give it smaller increments or more slots, or raise slow_run_seconds",
            run=run,
            stage=stage,
            seconds=seconds,
            to=to,
        )


class DataflowBusyError(OperatingError):
    """A dataflow cannot be amended at this moment; nothing was changed."""

    code = "dataflow_busy"

    def __init__(self, dataflow: str, why: str) -> None:
        super().__init__(f"{dataflow!r} is busy: {why}; try again", dataflow=dataflow, why=why)


class RollbackImpossibleError(OperatingError):
    """A dataflow cannot be taken back to where somebody wants it; nothing was changed."""

    code = "rollback_impossible"

    def __init__(self, dataflow: str, why: str, **more: Any) -> None:
        super().__init__(
            f"{dataflow!r} cannot be rolled back there: {why}", dataflow=dataflow, why=why, **more
        )


class RebuildIncompleteError(OperatingError):
    """Some dataflows could not be brought back from their folders; the others were."""

    code = "rebuild_incomplete"
    retryable = False

    def __init__(self, rebuilt: Sequence[str], failed: Mapping[str, CbpError]) -> None:
        causes = "; ".join(f"{name}: {error.message}" for name, error in failed.items())
        super().__init__(
            f"{len(failed)} dataflow(s) could not be brought back: {causes}. Mend the cause, "
            "then run `cbp recover --rebuild` again",
            rebuilt=list(rebuilt),
            failed={name: error.as_dict() for name, error in failed.items()},
        )


class TimeLimitError(OperatingError):
    """An author's code took longer than the operator allows; its stage stops."""

    code = "time_limit"
    retryable = False

    def __init__(self, what: str, seconds: float) -> None:
        super().__init__(
            f"{what} had not ended after {seconds:g} s and was given up: mend the translator or "
            "raise run_seconds_max, then resume",
            what=what,
            seconds=seconds,
        )


class SparkSettingError(OperatingError):
    """Spark runs with a setting under which a retried stage may give other records."""

    code = "spark_setting_unsafe"
    retryable = False

    def __init__(self, setting: str, *, found: str, expected: str) -> None:
        super().__init__(
            f"Spark runs with {setting}={found}, the engine needs {expected}: else a stage that "
            "is tried again may lose or double records; take the setting out of the options that "
            "are given to Spark, and let no other session start before the service's",
            setting=setting,
            found=found,
            expected=expected,
        )


class NotFoundError(OperatingError):
    """A name, key or table does not exist."""

    code = "not_found"
    retryable = False

    def __init__(self, kind: str, name: str) -> None:
        super().__init__(f"there is no {kind} {name!r}", kind=kind, name=name)


class AlreadyExistsError(OperatingError):
    """A name is taken already."""

    code = "already_exists"
    retryable = False

    def __init__(self, kind: str, name: str) -> None:
        super().__init__(f"there is a {kind} {name!r} already", kind=kind, name=name)


class FlowUnframedError(OperatingError):
    """A flow is to be closed, and no stage frames it."""

    code = "flow_unframed"
    retryable = False

    def __init__(self, flow: str, framed: Sequence[str]) -> None:
        super().__init__(
            f"no stage frames the flow {flow!r}, so there is nothing to close; "
            f"framed are: {', '.join(framed) or 'none'}",
            flow=flow,
            framed=list(framed),
        )


def _standing(epoch: int | None) -> str:
    return "does not lead" if epoch is None else f"led as epoch {epoch}"
