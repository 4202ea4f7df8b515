"""Methods of the client: runs, and roll-backs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, TypeVar
from uuid import uuid4

from cbp.client.answers import (
    BulkItem,
    GiveBackJob,
    GivenBack,
    Moment,
    Rollback,
    RollbackJob,
    RollbackPlan,
    Run,
    SetAside,
    answer_of,
)
from cbp.client.calls import Calls, When, instant
from cbp.client.errors import problem_of
from cbp.client.pages import Pages

J = TypeVar("J", RollbackJob, GiveBackJob)


class RunCalls(Calls):
    """Calls about runs, to ask about them and to take them back."""

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
        return self.list_of(
            Run,
            "runs",
            dataflow=dataflow,
            stage=stage,
            status=status,
            epoch=epoch,
            error_code=error_code,
            since=instant(since),
            until=instant(until),
        )

    def run(self, run: str) -> Run:
        """Return one run."""
        return answer_of(Run, self.rest.get("runs", run))

    def cancel_runs(self, runs: Sequence[str]) -> list[BulkItem]:
        """Ask runs to stop, and return what became of each request; their input stays queued."""
        return self._each(runs, "cancel")

    def retry_runs(self, runs: Sequence[str]) -> list[BulkItem]:
        """Let the stages of failed runs try again, and return what became of each request."""
        return self._each(runs, "retry")

    def moments(self, name: str, *, limit: int = 50) -> list[Moment]:
        """Return the newest moments to which a dataflow can be rolled back, newest first."""
        page = self.rest.get("dataflows", name, "rollback", "moments", limit=limit)
        return [answer_of(Moment, one) for one in page["items"]]

    def plan_roll_back(
        self,
        name: str,
        to: int | str | datetime,
        *,
        drop_later: bool = False,
        without: Sequence[str] = (),
    ) -> RollbackPlan:
        """Show what a roll-back would do; arguments as for `roll_back`."""
        asked = _where(to, drop_later=drop_later, without=without)
        return answer_of(RollbackPlan, self.rest.get("dataflows", name, "rollback", **asked))

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

        Returns once that is done. The service goes on with it if this process ends meanwhile.

        Args:
            name: Name of the dataflow.
            to: The `position` of a moment, the last epoch of a stage that stays (`count:57`), or a
                time (in UTC if it has no zone).
            reason: Why; kept for good.
            by: Who asks for it.
            drop_later: Do not read again what arrived after that moment.
            without: Files that are not read again: each a file's name, `source/name`, or an
                increment as `source/number`.
            pause: Leave the dataflow paused.
            poll_seconds: Pause between two looks.
            report: Called with how far it is, at each look.

        Raises:
            ConflictRefusedError: If this moment cannot be reached.
            RequestRefusedError: If `to` or `without` names nothing.
        """
        asked = {
            **_where(to, drop_later=drop_later, without=without),
            "reason": reason,
            "by": by,
            "pause": str(pause).lower(),
        }
        path = ("dataflows", name, "rollback")
        begun = self.rest.post(*path, query=asked, idempotency_key=str(uuid4()))

        job = self._ended(RollbackJob, path, begun["id"], poll_seconds, report)
        if job.rollback is None:
            raise _failure(job.error)
        return job.rollback

    def rollbacks(self, name: str) -> Pages[Rollback]:
        """Return the roll-backs of a dataflow, newest first."""
        return self.list_of(Rollback, "dataflows", name, "rollbacks")

    def set_aside(self, name: str, stage: str) -> Pages[SetAside]:
        """Return what a stage has set aside, in the order in which it is given back."""
        return self.list_of(SetAside, "dataflows", name, "stages", stage, "set-aside")

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
        """Give back what a stage has set aside, in its order, as an epoch of its own.

        Returns once that is done. The service goes on with it if this process ends meanwhile.

        Args:
            name: Name of the dataflow.
            stage: Name of the stage.
            reason: Why; kept for good.
            by: Who asks for it.
            dry_run: Call the code, tell what would fail again, and change nothing.
            poll_seconds: Pause between two looks.
            report: Called with how far it is, at each look.

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

    def _ended(
        self,
        kind: type[J],
        path: tuple[str, ...],
        id_: str,
        poll_seconds: float,
        report: Callable[[J], object],
    ) -> J:
        """Look at a job until it has ended."""
        while not (job := answer_of(kind, self.rest.get(*path, "jobs", id_))).ended:
            report(job)
            self.rest.clock.wait(poll_seconds)
        return job

    def _each(self, runs: Sequence[str], what: str) -> list[BulkItem]:
        answer = self.rest.post_json("runs", what, value={"runs": list(runs)})
        return [answer_of(BulkItem, one) for one in answer["items"]]


def _failure(error: Any) -> Exception:
    """Return what a job failed with, as a refused request raises it."""
    failure = error or {}
    return problem_of(failure, int(failure.get("status", 500)))


def _where(to: int | str | datetime, *, drop_later: bool, without: Sequence[str]) -> dict[str, Any]:
    """Return the parameters that say what a roll-back does."""
    moment = instant(to) if isinstance(to, datetime) else str(to)
    return {"to": moment, "drop_later": str(drop_later).lower(), "without": list(without)}
