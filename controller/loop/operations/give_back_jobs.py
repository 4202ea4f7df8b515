"""Jobs that give back what a stage had set aside; see `controller.loop.operations.jobs`.

start -> waits for runs -> publishes what is finished -> calls the code -> records the run -> done

A job can only try: it calls the code, reports what fails again, and changes nothing.
"""

from __future__ import annotations

from datetime import UTC, datetime

from controller.loop.operations.jobs import Job, Jobs, id_of
from controller.loop.recovery.corrections import GivenBack
from controller.loop.recovery.past_position import Tell

GiveBackJob = Job[GivenBack]


class GiveBackJobs(Jobs[GivenBack]):
    """Starts to give back, and reports the progress; safe to use from several threads."""

    kind, busy = "give-back", "gets back what was set aside"

    def start(self, name: str, stage: str, *, who: str, why: str, request: str = "") -> GiveBackJob:
        """Begin to give back what a stage had set aside; returns at once.

        Arguments: see `Amendments.give_back`.

        Raises:
            NotFoundError: If there is no such dataflow or stage, or nothing is set aside.
            CodeDriftedError: If the loaded code is not the registered one.
            DataflowBusyError: If the dataflow is held, or gets something back already.
        """

        def carry_out(tell: Tell, request: str) -> GivenBack:
            return self._amendments.give_back(
                name, stage, who=who, why=why, request=request, tell=tell
            )

        if not request or self._find(name, id_of(request)) is None:
            self._amendments.check_give_back(name, stage)
        return self._begin(name, request, carry_out, stage)

    def start_trial(self, name: str, stage: str) -> GiveBackJob:
        """Begin to call a stage's code with what is set aside; changes nothing, raises the same."""
        self._amendments.check_give_back(name, stage)

        def carry_out(tell: Tell, request: str) -> GivenBack:
            return self._amendments.try_to_give_back(name, stage, tell=tell)

        return self._begin(name, "", carry_out, stage)

    def recorded(self, name: str, id_: str) -> GiveBackJob | None:
        """Return a job that was done before, by the record of its run."""
        for one in self._amendments.corrections(name):
            if one.note.gives_back and one.note.request and id_of(one.note.request) == id_:
                return GiveBackJob(
                    id=id_,
                    dataflow=name,
                    began_at=datetime.fromtimestamp(one.at_ms / 1000, UTC),
                    stage=one.note.stage,
                    status="done",
                    step="is done",
                    result=GivenBack.recorded(one),
                )
        return None
