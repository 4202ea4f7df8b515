"""When a dataflow publishes, and what it publishes together. Pure.

A run is durable with its record; what readers of the tables see follows at the next
*publication*. State and outputs of all stages are published together: one publication
covers every record that was finished before it, and its entries have one timestamp.

    record ---- record ---- record* ---- record ---- record*          * due: publishes
    '--------- published ---------'      '---- published ---'

A record says from which epoch on its stage was not published (`unpublished_from`), so
that the records that a restart has to publish are found from the newest one of each
stage. Records are put and publications are made one after the other within a dataflow,
and `prepared_ms` rises from record to record. So the newest records of the stages tell
what the last publication covered and its timestamp, if it died: nothing more is kept.

Source: ours; the idea of publishing less often than running is that of group commit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from cbp.model.intention import Intention

__all__ = [
    "EPOCHS_MAX",
    "EVERY_EPOCH",
    "SECONDS_DEFAULT",
    "SECONDS_MAX",
    "Publication",
    "PublishPolicy",
    "due",
]

EPOCHS_MAX = 1_000
SECONDS_MAX = 86_400.0
SECONDS_DEFAULT = 60.0

Waiting = Mapping[str, Sequence[Intention]]
"""Stage to its records that are finished and not published, oldest first."""


@dataclass(frozen=True, slots=True)
class PublishPolicy:
    """How long a dataflow may run on without publishing; whatever comes first.

    More epochs cost readers freshness and a restart some time, and save the vectors of
    the epochs in between: worth it where the state is huge and the increments are small.

    Attributes:
        epochs: Epochs of a stage after which all stages publish; 1: every one.
        seconds: Longest time that a finished record waits, as long as the service runs.
    """

    epochs: int = 1
    seconds: float = SECONDS_DEFAULT

    def mistakes(self) -> Iterator[tuple[str, str]]:
        """Yield field and message for what is out of bounds."""
        if not 1 <= self.epochs <= EPOCHS_MAX:
            yield "epochs", f"{self.epochs} epochs; use 1 (publish every epoch) to {EPOCHS_MAX}"
        if not 0 < self.seconds <= SECONDS_MAX:
            yield (
                "seconds",
                f"{self.seconds} seconds; use more than 0, at most {SECONDS_MAX:.0f} (a day)",
            )


EVERY_EPOCH = PublishPolicy()


@dataclass(frozen=True, slots=True)
class Publication:
    """What becomes visible together.

    Attributes:
        timestamp_ms: In-commit timestamp of all its entries, later than any before.
        covers: Stage to its records, oldest first; no stage without any.
    """

    timestamp_ms: int
    covers: Waiting


def due(
    policy: PublishPolicy, waiting: Waiting, *, now_ms: int, at_once: bool = False
) -> Publication | None:
    """Return the publication that is due; `None` when there is none yet.

    Args:
        policy: Of the dataflow.
        waiting: Finished records of all its stages.
        now_ms: Milliseconds since 1970.
        at_once: Whatever the policy says: the dataflow stops, or was just started.
    """
    covers = {stage: tuple(records) for stage, records in waiting.items() if records}
    if not covers:
        return None
    oldest_ms = min(records[0].prepared_ms for records in covers.values())
    reached = max(len(records) for records in covers.values()) >= policy.epochs
    if not (at_once or reached or now_ms - oldest_ms >= policy.seconds * 1000):
        return None
    return Publication(max(records[-1].prepared_ms for records in covers.values()), covers)
