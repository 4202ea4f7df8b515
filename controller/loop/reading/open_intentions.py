"""Open intentions: committed runs that are not yet published, by stage and epoch.

A run is committed once its record is put. Its tables show it with the next publication, which the
dataflow's policy may put off (`publish:`), or after a failure, once finishing it has succeeded.
Only the instance that leads knows which records its tables lack.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from cbp.model.run.intention import Intention
from controller.loop.runs.finisher import ParkedRuns
from controller.loop.runs.publisher import Publisher


@dataclass(frozen=True, slots=True)
class OpenIntention:
    """One record that readers of the tables do not see yet.

    Attributes:
        waits_for: `publication` if nothing is wrong; `finish` if finishing it failed, see
            `because`.
        because: Why finishing it failed, and when it is retried; `""` if it did not fail.
    """

    intention: Intention
    waits_for: Literal["publication", "finish"]
    because: str = ""
    tries: int = 0

    @property
    def records(self) -> int:
        """Records of all outputs of the run."""
        return sum(increment.records for increment in self.intention.outputs.values())

    @property
    def tables(self) -> tuple[str, ...]:
        """Tables that will change, in the order in which the run changed them."""
        return tuple(dict.fromkeys(change.table for change in self.intention.changes))


def open_intentions(
    dataflow: str, publisher: Publisher, parked: ParkedRuns
) -> Sequence[OpenIntention]:
    """Return the open intentions of a dataflow, by stage and epoch."""
    by_epoch: dict[tuple[str, int], OpenIntention] = {}
    for stage, records in publisher.records(dataflow).items():
        for one in records:
            by_epoch[stage, one.epoch] = OpenIntention(one, "publication")
    for (name, stage), known in parked.all().items():
        if name == dataflow:
            one = known.run.intention
            by_epoch[stage, one.epoch] = OpenIntention(one, "finish", known.reason, known.tries)
    return [by_epoch[key] for key in sorted(by_epoch)]
