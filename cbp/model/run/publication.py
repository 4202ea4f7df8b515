"""Publication: when a dataflow publishes, and which records it publishes together. Pure.

A run is durable once its record is put. Readers of the tables see it after the next *publication*;
until then, the records define the state. State and outputs of all stages are published together:
one publication covers every record that was finished before it, and all its log entries have one
timestamp.

    record ---- record ---- record* ---- record ---- record*          * due: publishes
    '--------- published ---------'      '---- published ---'

A record holds the first epoch of its stage that was not yet published (`unpublished_from`). So the
newest record of each stage leads to all records that a restart must publish. Within a dataflow,
records and publications follow one another, and `prepared_ms` rises from record to record. So if
the last publication was interrupted, the newest records of the stages show its records and its
timestamp. Nothing more is stored.

Source: ours; publishing less often than running is the idea of group commit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cbp.model.dataflow.dataflow import PublishPolicy
from cbp.model.run.intention import Intention

Waiting = Mapping[str, Sequence[Intention]]
"""Maps each stage to its finished records that are not published, oldest first."""


@dataclass(frozen=True, slots=True)
class Publication:
    """The records that become visible together, all with one in-commit timestamp."""

    timestamp_ms: int
    covers: Waiting


def due(
    policy: PublishPolicy, waiting: Waiting, *, now_ms: int, at_once: bool = False
) -> Publication | None:
    """Return the publication that is due, if any; `at_once` ignores the policy."""
    covers = {stage: tuple(records) for stage, records in waiting.items() if records}
    if not covers:
        return None
    oldest_ms = min(records[0].prepared_ms for records in covers.values())
    reached = max(len(records) for records in covers.values()) >= policy.epochs
    if not (at_once or reached or now_ms - oldest_ms >= policy.seconds * 1000):
        return None
    return Publication(max(records[-1].prepared_ms for records in covers.values()), covers)
