"""Roll-back jobs; see `controller.loop.operations.jobs`.

start -> reads the past -> waits for runs -> changes tables -> fills the queues -> done
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from cbp.model.flow.generation import Generation
from cbp.model.version.rollback_point import parse_point
from controller.loop.operations.jobs import Job, Jobs, id_of
from controller.loop.recovery.past_position import Tell

RollbackJob = Job[Generation]


class RollbackJobs(Jobs[Generation]):
    """Starts roll-backs and reports their progress; safe to use from several threads."""

    kind, busy = "roll-back", "is being rolled back"

    def start(
        self,
        name: str,
        to: str,
        *,
        who: str,
        why: str,
        drop_later: bool = False,
        without: Sequence[str] = (),
        pause: bool = False,
        request: str = "",
    ) -> RollbackJob:
        """Begin to roll a dataflow back; returns at once. Arguments: see `Amendments.roll_back`.

        Whatever needs the past to be read is found by the job, which then fails.

        Raises:
            NotFoundError: If there is no such dataflow.
            DefinitionError: Rule `rollback_target_invalid`, if `to` is not a name of a point.
            DataflowBusyError: If it is held, or is rolled back already.
        """
        parse_point(to)

        def carry_out(tell: Tell, request: str) -> Generation:
            return self._amendments.roll_back(
                name,
                to,
                who=who,
                why=why,
                drop_later=drop_later,
                without=without,
                pause=pause,
                request=request,
                tell=tell,
            )

        return self._begin(name, request, carry_out)

    def recorded(self, name: str, id_: str) -> RollbackJob | None:
        """Return a roll-back that was done before, by the record of its generation."""
        for one in self._amendments.rollbacks(name):
            if one.request and id_of(one.request) == id_:
                return RollbackJob(
                    id=id_,
                    dataflow=name,
                    began_at=datetime.fromtimestamp(one.prepared_ms / 1000, UTC),
                    status="done",
                    step="is done",
                    result=one,
                )
        return None
