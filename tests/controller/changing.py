"""A world in which new versions take over, and the versions to try.

Every translator adds up numbers per word, so that what a stage keeps can be said in plain
Python; they differ in the columns of their state.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cbp import Input, Output, State, Translate, TranslateRecords
from cbp.engine.direct import LocalEngine
from cbp.model.version.version_change import Choice
from controller.loop import LoopLimits
from controller.loop.operations.version_switch import Changed
from tests.controller.world import SCHEMA, Sum, World

POINTS = [
    f"{effect}.{side}"
    for effect in (
        "description", "log_entry", "data_file", "data_sync", "dead_record", "sql_commit",
    )
    for side in ("before", "after")
]  # fmt: skip


KEEPING_HOUSE = LoopLimits(records_kept=1)
"""Limits with which positions are put, and records removed, all the time."""


class Double(Translate):
    """Add up twice each number per word, and keep when in more columns."""

    items = Input("word STRING, n BIGINT", route_by="word")
    sums = State("word STRING, n BIGINT, twice BOOLEAN")
    totals = Output("word STRING, n BIGINT, twice BOOLEAN", key="word")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        n = sum(2 * r.n for r in group.items) + sum(r.n for r in group.sums)
        out.sums(word=key.word, n=n, twice=True)
        out.totals(word=key.word, n=n, twice=True)


class Fewer(Translate):
    """Keep numbers in fewer bits."""

    items = Input("word STRING, n BIGINT", route_by="word")
    sums = State("word STRING, n SMALLINT")
    totals = Output("word STRING, n BIGINT", key="word")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        n = sum(r.n for r in group.items) + sum(r.n for r in group.sums)
        out.sums(word=key.word, n=n)
        out.totals(word=key.word, n=n)


class Upgraded(Sum):
    """The same tables by other code."""

    def translate(self, key: Any, group: Any, out: Any) -> None:
        super().translate(key, group, out)


class Marked(TranslateRecords):
    """Write words as they are, and where they come from."""

    words = Input("word STRING, n BIGINT, mark STRING")
    capitals = Output("word STRING, n BIGINT")

    def translate(self, record: Any, out: Any) -> None:
        out.capitals(word=f"{record.word}{record.mark or ''}", n=record.n)


class Changing(World):
    """A world of the direct engine, with translators to change to."""

    def __init__(self, root: Path, **more: Any) -> None:
        more = {"collect_every": 2, "limits": KEEPING_HOUSE, **more}
        super().__init__(root, engine=LocalEngine, **more)
        self.translators |= {"double": Double, "fewer": Fewer, "marked": Marked}
        self.restart()

    def change(self, document: Any, *, dry_run: bool = False, **choice: Any) -> Changed:
        """Let a version take over; choices are lists of stages."""
        chosen = Choice(**{word: frozenset(names) for word, names in choice.items()})
        return self.controller.change(document, choice=chosen, dry_run=dry_run)

    def sums(self, stage: str = "sum") -> dict[str, int]:
        """Return the sums that a stage keeps."""
        record = self.store.dataflow("d")
        node = self.controller.dataflow("d").stages[stage]
        return {
            r["word"]: r["n"] for r in self.engine.records.read_state(record.folder, node, "sums")
        }

    def waiting(self, stage: str, input_: str = "items") -> list[int]:
        queue = self.store.connectors("d")[stage][input_].queue
        return [queued.increment.index for queued in queue]

    def epochs(self) -> dict[str, int]:
        return {stage.stage: stage.epoch for stage in self.store.stages("d")}


def document(**stages: Any) -> dict[str, Any]:
    """Return a dataflow; a stage is a translator's name, or a mapping of what it has."""
    made = {}
    for name, given in stages.items():
        node = {"translator": given} if isinstance(given, str) else dict(given)
        node.setdefault("inputs", {"items": "a"})
        made[name] = {"buckets": 2, **node}
    return {"name": "d", "sources": {"a": {"schema": SCHEMA}}, "stages": made}


ONE = document(sum="sum")
