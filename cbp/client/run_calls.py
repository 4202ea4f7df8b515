"""Methods of the client: runs, and jobs: roll-backs, give-backs, verifications, rebuilds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Literal, TypeVar
from uuid import uuid4

from cbp.client.answers import (
    BulkItem,
    Difference,
    GiveBackJob,
    GivenBack,
    Moment,
    RebuildJob,
    Rollback,
    RollbackJob,
    RollbackPlan,
    Run,
    SetAside,
    Verification,
    answer_of,
)
from cbp.client.calls import Calls, Document, When, body_of_document, instant, times
from cbp.client.errors import problem_of
from cbp.client.pages import Pages
from cbp.errors import CbpError

_REBUILDING = ("building", "swapping")
J = TypeVar("J", RollbackJob, GiveBackJob)


class RunCalls(Calls):
    """Methods that show, cancel, retry and undo runs.

    Methods that wait poll every `poll_seconds`, and call `report` with the progress each time. The
    service continues even if this process ends meanwhile. A `reason` is stored permanently, with
    the name of the person who asks (`by`).
    """

    def runs(
        self,
        dataflow: str | None = None,
        *,
        stage: str | None = None,
        status: str | None = None,
        epoch: int | None = None,
        error_code: str | None = None,
        since: When = None,
        until: When = None,
    ) -> Pages[Run]:
        """Return runs, newest first; `status` is `INTENDED`, `COMMITTED` or `FAILED`."""
        chosen = {"stage": stage, "status": status, "epoch": epoch, "error_code": error_code}
        return self.list_of(Run, "runs", dataflow=dataflow, **chosen, **times(since, until))

    def run(self, run: str) -> Run:
        """Return one run."""
        return self._got(Run, "runs", run)

    def cancel_run(self, run: str) -> Run:
        """Ask a run to stop; the answer's `status` shows whether it had already ended."""
        return self._posted(Run, "runs", run, "cancel")

    def cancel_runs(self, runs: Sequence[str]) -> list[BulkItem]:
        """Ask runs to stop, and return the result for each; their input stays queued."""
        return self._each(runs, "cancel")

    def retry_runs(self, runs: Sequence[str]) -> list[BulkItem]:
        """Retry the stages of failed runs, and return the result for each run."""
        return self._each(runs, "retry")

    def moments(
        self, name: str, *, limit: int = 50, since: When = None, until: When = None
    ) -> list[Moment]:
        """Return the newest moments to which a dataflow can be rolled back, newest first."""
        at, asked = ("dataflows", name, "rollback", "moments"), times(since, until)
        page = self.rest.get(*at, limit=limit, **asked)
        found = page["items"]
        while page.get("cursor") and len(found) < limit:  # the operator allows smaller pages only
            page = self.rest.get(*at, limit=limit - len(found), cursor=page["cursor"], **asked)
            found += page["items"]
        return [answer_of(Moment, one) for one in found]

    def plan_roll_back(
        self,
        name: str,
        to: int | str | datetime,
        *,
        drop_later: bool = False,
        without: Sequence[str] = (),
    ) -> RollbackPlan:
        """Show the effects of a roll-back; arguments as for `roll_back`."""
        asked = _where(to, drop_later=drop_later, without=without)
        return self._got(RollbackPlan, "dataflows", name, "rollback", **asked)

    def roll_back(
        self,
        name: str,
        to: int | str | datetime,
        *,
        reason: str,
        by: str = "",
        drop_later: bool = False,
        without: Sequence[str] = (),
        pause: bool = False,
        poll_seconds: float = 0.2,
        report: Callable[[RollbackJob], object] = lambda job: None,
    ) -> Rollback:
        """Take tables, queues and epochs back to an earlier moment, and continue from there.

        Returns once the roll-back is done.

        Args:
            to: The `position` of a moment, a stage and its last epoch to keep (`count:57`), a
                time (in UTC if it has no zone), or the increment to apply next (`urls/3`).
            drop_later: Do not read files again that arrived after that moment.
            without: Files that are not read again: each is a file's name, `source/name`, or an
                increment as `source/number`.
            pause: Leave the dataflow paused.

        Raises:
            ConflictRefusedError: If the dataflow cannot be rolled back to this moment.
            RequestRefusedError: If `to` or `without` names something unknown.
        """
        asked = {
            **_where(to, drop_later=drop_later, without=without),
            "reason": reason,
            "by": by,
            "pause": pause,
        }
        path = ("dataflows", name, "rollback")
        begun = self.rest.post(*path, query=asked, idempotency_key=str(uuid4()))
        return self._rolled_back(name, begun["id"], poll_seconds, report)

    def replay(
        self,
        name: str,
        flow: str,
        index: int,
        *,
        reason: str,
        by: str = "",
        poll_seconds: float = 0.2,
        report: Callable[[RollbackJob], object] = lambda job: None,
    ) -> Rollback:
        """Apply an increment and all later ones again, with the registered code.

        The dataflow is rolled back to the moment before the increment arrived, or before a stage
        wrote it; `plan_roll_back(name, "urls/3")` shows what that undoes. Arguments as for
        `roll_back`.
        """
        path = ("dataflows", name, "increments", flow, str(index), "replay")
        asked = {"reason": reason, "by": by}
        begun = self.rest.post(*path, query=asked, idempotency_key=str(uuid4()))
        return self._rolled_back(name, begun["id"], poll_seconds, report)

    def _rolled_back(
        self, name: str, job: str, poll_seconds: float, report: Callable[[RollbackJob], object]
    ) -> Rollback:
        path = ("dataflows", name, "rollback")
        ended = self._ended(RollbackJob, path, job, poll_seconds, report)
        if ended.rollback is None:
            raise _failure(ended.error)
        return ended.rollback

    def rollbacks(self, name: str, *, since: When = None, until: When = None) -> Pages[Rollback]:
        """Return the roll-backs of a dataflow, newest first."""
        return self.list_of(Rollback, "dataflows", name, "rollbacks", **times(since, until))

    def set_aside(
        self,
        name: str,
        stage: str,
        *,
        code: str | None = None,
        since: When = None,
        until: When = None,
    ) -> Pages[SetAside]:
        """Return the records that a stage has set aside, in the order of a give-back."""
        chosen = {"code": code, **times(since, until)}
        return self.list_of(SetAside, "dataflows", name, "stages", stage, "set-aside", **chosen)

    def give_back(
        self,
        name: str,
        stage: str,
        *,
        reason: str = "",
        by: str = "",
        dry_run: bool = False,
        poll_seconds: float = 0.2,
        report: Callable[[GiveBackJob], object] = lambda job: None,
    ) -> GivenBack:
        """Give back the records that a stage has set aside, in order, in an epoch of their own.

        Returns once the give-back is done. `dry_run` only calls the code on the records: it returns
        how many would fail again, and changes nothing.

        Raises:
            ResourceMissingError: If nothing is set aside.
        """
        path = ("dataflows", name, "stages", stage, "give-back")
        if dry_run:
            begun = self.rest.post(*path, "preview")
        else:
            asked = {"reason": reason, "by": by}
            begun = self.rest.post(*path, query=asked, idempotency_key=str(uuid4()))
        job = self._ended(GiveBackJob, path, begun["id"], poll_seconds, report)
        if job.given_back is None:
            raise _failure(job.error)
        return job.given_back

    def verify(
        self,
        name: str,
        *,
        split: Literal["increments", "at_once"] = "increments",
        engine: Literal["direct", "reference"] = "direct",
        twice: bool = False,
        seconds_max: float = 600,
        poll_seconds: float = 0.2,
        report: Callable[[Verification], object] = lambda verification: None,
    ) -> Verification:
        """Recompute a dataflow from its kept input, and compare every table.

        Returns once the verification has ended; its `status` is the result. An exception in
        `report`, or an interrupt, cancels it. After `seconds_max` it ends as `timed_out`.

        Args:
            split: Whether to read increments as they arrived, or all input in one batch.
            engine: `reference` shares no code with runs; it is slow, and holds everything in
                memory.
            twice: Recompute twice even if nothing differs.
        """
        asked = {"split": split, "engine": engine, "twice": twice, "seconds_max": seconds_max}
        answer = self.rest.post_json("dataflows", name, "verifications", value=asked)
        seen = answer_of(Verification, answer)
        try:
            while not seen.ended:
                report(seen)
                self.rest.clock.wait(poll_seconds)
                seen = self.verification(seen.id)
        except BaseException as stop:
            try:
                self.cancel_verification(seen.id)
            except CbpError as error:
                stop.add_note(f"verification {seen.id} was not cancelled: {error.message}")
            raise
        return seen

    def verification(self, verification: str) -> Verification:
        """Return one verification, also while it is under way."""
        return self._got(Verification, "verifications", verification)

    def cancel_verification(self, verification: str) -> Verification:
        """Cancel a verification; it keeps its results so far."""
        return self._posted(Verification, "verifications", verification, "cancel")

    def verifications(
        self, name: str, *, error_code: str | None = None, since: When = None, until: When = None
    ) -> Pages[Verification]:
        """Return the last verifications of a dataflow, newest first."""
        chosen = {"error_code": error_code, **times(since, until)}
        return self.list_of(Verification, "dataflows", name, "verifications", **chosen)

    def differences(
        self, verification: Verification | str, *, table: str | None = None
    ) -> Pages[Difference]:
        """Return the differing keys that a verification stored, for all tables or for one."""
        id_ = verification if isinstance(verification, str) else verification.id
        return self.list_of(Difference, "verifications", id_, "differences", table=table)

    def rebuild(
        self,
        name: str,
        document: Document | None = None,
        *,
        seed: Sequence[str] = (),
        poll_seconds: float = 0.2,
        report: Callable[[RebuildJob], object] = lambda job: None,
    ) -> RebuildJob:
        """Build all tables again while the current ones stay; `swap` then shows the new tables.

        Returns once the new tables are ready, with their differences, or once the rebuild is
        cancelled.

        Args:
            document: The version to build; by default the current one.
            seed: Files to read instead of removed input, each as `source=path` on the service's
                machine: a Parquet file, a folder of such files, or a Delta table.

        Raises:
            ConflictRefusedError: If a rebuild is already under way, or input is no longer kept.
        """
        sent = {} if document is None else body_of_document(document)
        query = {"seed": list(seed)}
        begun = self.rest.post("dataflows", name, "rebuilds", query=query, **sent)
        return self.follow_rebuild(name, begun["id"], poll_seconds=poll_seconds, report=report)

    def swap(
        self,
        name: str,
        rebuild: RebuildJob | str,
        *,
        poll_seconds: float = 0.2,
        report: Callable[[RebuildJob], object] = lambda job: None,
    ) -> RebuildJob:
        """Replace the current tables by those of a rebuild, all at the same time."""
        id_ = rebuild if isinstance(rebuild, str) else rebuild.id
        self.rest.post("dataflows", name, "rebuilds", id_, "swap")
        return self.follow_rebuild(name, id_, poll_seconds=poll_seconds, report=report)

    def cancel_rebuild(self, name: str, rebuild: RebuildJob | str) -> RebuildJob:
        """Cancel a rebuild; the current tables stay as they are."""
        id_ = rebuild if isinstance(rebuild, str) else rebuild.id
        return self._posted(RebuildJob, "dataflows", name, "rebuilds", id_, "cancel")

    def swap_back(self, name: str) -> int:
        """Undo the last swap: readers see the earlier tables again. Return their version."""
        return int(self.rest.post("dataflows", name, "rebuilds", "back")["version"])

    def rebuilds(
        self, name: str, *, error_code: str | None = None, since: When = None, until: When = None
    ) -> list[RebuildJob]:
        """Return the rebuilds of a dataflow, newest first."""
        chosen = {"error_code": error_code, **times(since, until)}
        answer = self.rest.get("dataflows", name, "rebuilds", **chosen)
        return [answer_of(RebuildJob, one) for one in answer["items"]]

    def follow_rebuild(
        self,
        name: str,
        rebuild: str,
        *,
        poll_seconds: float = 0.2,
        report: Callable[[RebuildJob], object] = lambda job: None,
    ) -> RebuildJob:
        """Wait until a rebuild, such as one that `change` began, is ready or has ended."""
        path = ("dataflows", name, "rebuilds", rebuild)
        while not (job := self._got(RebuildJob, *path)).ended and job.status in _REBUILDING:
            report(job)
            self.rest.clock.wait(poll_seconds)
        if job.error is not None:
            raise _failure(job.error)
        return job

    def _ended(
        self,
        kind: type[J],
        path: tuple[str, ...],
        id_: str,
        poll_seconds: float,
        report: Callable[[J], object],
    ) -> J:
        while not (job := self._got(kind, *path, "jobs", id_)).ended:
            report(job)
            self.rest.clock.wait(poll_seconds)
        return job

    def _each(self, runs: Sequence[str], what: str) -> list[BulkItem]:
        answer = self.rest.post_json("runs", what, value={"runs": list(runs)})
        return [answer_of(BulkItem, one) for one in answer["items"]]


def _failure(error: Any) -> Exception:
    """Return the error of a failed job, in the form of a refused request."""
    failure = error or {}
    return problem_of(failure, int(failure.get("status", 500)))


def _where(to: int | str | datetime, *, drop_later: bool, without: Sequence[str]) -> dict[str, Any]:
    moment = instant(to) if isinstance(to, datetime) else str(to)
    return {"to": moment, "drop_later": drop_later, "without": list(without)}
