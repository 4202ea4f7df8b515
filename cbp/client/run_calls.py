"""Methods of the client: runs, and roll-backs."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import uuid4

from cbp.client.answers import BulkItem, Moment, Rollback, RollbackPlan, Run, answer_of
from cbp.client.calls import Calls, When, instant
from cbp.client.pages import Pages

__all__ = ["RunCalls"]


class RunCalls(Calls):
    """What a client can ask of runs, and take back."""

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

    def plan_roll_back(self, name: str, to: int | str, *, drop_later: bool = False) -> RollbackPlan:
        """Show what a roll-back would do; arguments as for `roll_back`."""
        asked = {"to": str(to), "drop_later": str(drop_later).lower()}
        return answer_of(RollbackPlan, self.rest.get("dataflows", name, "rollback", **asked))

    def roll_back(
        self,
        name: str,
        to: int | str,
        *,
        reason: str,
        by: str = "",
        drop_later: bool = False,
        pause: bool = False,
    ) -> Rollback:
        """Take tables, queues and epochs back to an earlier moment, and continue from there.

        Args:
            name: Name of the dataflow.
            to: The `position` of a moment, the last epoch of a stage that stays (`count:57`), or a
                time.
            reason: Why; kept for good.
            by: Who asks for it.
            drop_later: Do not read again what arrived after that moment.
            pause: Leave the dataflow paused.

        Raises:
            ConflictRefusedError: If this moment cannot be reached.
        """
        asked = {
            "to": str(to),
            "reason": reason,
            "by": by,
            "drop_later": str(drop_later).lower(),
            "pause": str(pause).lower(),
        }
        answer = self.rest.post(
            "dataflows", name, "rollback", query=asked, idempotency_key=str(uuid4())
        )
        return answer_of(Rollback, answer)

    def rollbacks(self, name: str) -> Pages[Rollback]:
        """Return the roll-backs of a dataflow, newest first."""
        return self.list_of(Rollback, "dataflows", name, "rollbacks")

    def _each(self, runs: Sequence[str], what: str) -> list[BulkItem]:
        answer = self.rest.post_json("runs", what, value={"runs": list(runs)})
        return [answer_of(BulkItem, one) for one in answer["items"]]
