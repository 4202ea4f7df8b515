"""What a new version changes in a dataflow, as the API shows it."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from cbp.model.version.succession import Queueing
from cbp.model.version.version_change import Choice
from controller.api.answers.schemas import Model
from controller.loop.operations.version_change import Changed

__all__ = ["ChangeOut", "ChangeQuery", "change_out"]

_STAGES_MAX = 500
Names = Annotated[list[str], Field(max_length=_STAGES_MAX)]


class ChangeQuery(Model):
    """The author's choice for stages whose fate the document does not decide."""

    keep: Names = Field([], description="Replaced stages that keep their state and queues.")
    rebuild: Names = Field([], description="Stages whose state is made again from their input.")
    retained: Names = Field([], description="Added stages that begin with the retained input.")
    expected_version: int | None = Field(None, ge=1, description="Refuse at any other version.")
    dry_run: bool = Field(False, description="Change nothing, only tell.")

    @property
    def choice(self) -> Choice:
        """The choice as a value of the model."""
        return Choice(frozenset(self.keep), frozenset(self.rebuild), frozenset(self.retained))


class NodeOut(Model):
    """What happens to one source or stage."""

    name: str
    kind: str = Field(description="`kept`, `added`, `removed` or `replaced`.")
    state: str = Field(description="`none`, `kept`, `new` or `rebuilt`.")
    buckets: list[int] | None = Field(description="Before and after, where records move.")
    columns: dict[str, list[str]] = Field(description="Flow or state to its changed columns.")
    differences: list[str]
    rewired: list[str] = Field(description="Inputs that begin with another flow.")


class QueueChangeOut(Model):
    """What changes in the queue of one input."""

    stage: str
    input: str
    dropped_increments: int
    dropped_records: int
    queued_increments: int
    queued_records: int
    queued_bytes: int


class RefusalOut(Model):
    """One reason why a version cannot take over."""

    code: str
    where: str
    message: str


class ChangeOut(Model):
    """A new version, planned or done."""

    name: str
    version: int
    changed: bool = Field(description="Whether it differs from the version that was there.")
    done: bool = Field(description="Whether it has taken over.")
    sources: list[NodeOut]
    stages: list[NodeOut]
    queues: list[QueueChangeOut]
    refused: list[RefusalOut] = Field(description="Empty: it can take over.")


def change_out(changed: Changed) -> ChangeOut:
    """Return a change as the API shows it."""
    refused = (*changed.plan.refused, *changed.succession.refused)
    return ChangeOut(
        name=changed.dataflow,
        version=changed.version,
        changed=changed.changed,
        done=changed.done,
        sources=[NodeOut(**node.to_json()) for node in changed.plan.sources.values()],
        stages=[NodeOut(**node.to_json()) for node in changed.plan.stages.values()],
        queues=[QueueChangeOut(**_queue(queue)) for queue in changed.succession.queues],
        refused=[RefusalOut(code=m.code, where=m.where, message=m.message) for m in refused],
    )


def _queue(queue: Queueing) -> dict[str, Any]:
    return {
        "stage": queue.stage,
        "input": queue.input,
        "dropped_increments": len(queue.dropped),
        "dropped_records": sum(i.records for i in queue.dropped),
        "queued_increments": len(queue.queued),
        "queued_records": sum(i.records for i in queue.queued),
        "queued_bytes": sum(i.bytes for i in queue.queued),
    }
