"""Reads what compactions did last: the newest records of each stage, a bounded number of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cbp.engine.commit.intention_log import IntentionLog
from cbp.errors import FileDamagedError
from cbp.model.run.compactions import Compaction, last_compactions
from cbp.model.run.intention import Intention
from controller.store.base import StageRecord

__all__ = ["RECORDS_LEAST", "RECORDS_MOST", "read_compactions"]

RECORDS_MOST = 256
"""Records of a dataflow that are read, shared by its stages."""

RECORDS_LEAST = 16
"""Records of a stage that are read, however many stages there are."""


def read_compactions(log: IntentionLog, stages: Sequence[StageRecord]) -> list[Compaction]:
    """Return the newest compaction of each table of a dataflow, by table.

    A table that was not compacted in the records that are looked at is left out. Damaged records
    are, too: a part that needs them names the damage.
    """
    if not stages:
        return []
    each = max(RECORDS_LEAST, RECORDS_MOST // len(stages))
    return last_compactions(one for stage in stages for one in _newest(log, stage, each))


def _newest(log: IntentionLog, stage: StageRecord, most: int) -> Iterator[Intention]:
    for epoch in range(max(0, stage.epoch - most), stage.epoch):
        try:
            record = log.read(stage.stage, epoch)
        except FileDamagedError:
            continue
        if record is not None:
            yield record
