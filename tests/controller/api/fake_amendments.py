"""Amendments that a test can look into: requests are kept, nothing is done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from cbp.engine.interface.tables import TableRewind
from cbp.model.flow.generation import Generation
from cbp.model.flow.position import Position, StagePosition
from cbp.model.run.correction import Correction, CorrectionNote
from cbp.model.version.rollback_point import PointAfterRun, RollbackPoint, parse_point
from controller.loop.records.correction_log import Corrected
from controller.loop.recovery.corrections import GivenBack
from controller.loop.recovery.rollback import RollbackPlan
from controller.loop.recovery.undone_inputs import UndoneInput

__all__ = ["FakeAmendments"]


class FakeAmendments:
    """Answers as the real ones do, of a dataflow with one stage."""

    def __init__(self, store: Any) -> None:
        self.store = store
        self.asked: list[tuple[Any, ...]] = []
        self.begun: list[Generation] = []
        self.made: list[Corrected] = []

    def require_free(self, name: str) -> None:
        self.store.dataflow(name)

    def plan_roll_back(
        self, name: str, to: str, *, drop_later: bool = False, without: Sequence[str] = ()
    ) -> RollbackPlan:
        self.store.dataflow(name)
        parse_point(to)
        indexes = tuple(int(one.removeprefix("urls/")) for one in without)
        table = TableRewind(3, 2, 1, 60, 40, 900, 600)
        begun = self._generation(name, "", "", {"urls": 2} if drop_later else {})
        cut = RollbackPoint({"count": 4}, 0)
        tables, before = {"flows/count.totals": table}, {"urls": 3} if drop_later else {}
        begun = replace(begun, left_out={"urls": indexes} if indexes else {})
        undone = tuple(
            UndoneInput("urls", n, (not drop_later or n < 23) and n not in indexes)
            for n in range(25)
        )
        back = {"urls": (7,)} if to == "count:1" and 7 not in indexes else {}
        return RollbackPlan(begun, cut, 20, {"count.urls": 3}, 2, tables, before, undone, back)

    def roll_back(
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
        tell: Any = None,
    ) -> Generation:
        self.store.dataflow(name)
        asked = (name, to, who, why, drop_later, tuple(without), pause, request)
        self.asked.append(("roll_back", *asked))
        begun = replace(self._generation(name, who, why, {}), request=request)
        self.begun.append(begun)
        return self.begun[-1]

    def moments(
        self,
        name: str,
        *,
        limit: int,
        since: datetime | None = None,
        until: datetime | None = None,
        below: int | None = None,
        drop_later: bool = False,
    ) -> Sequence[PointAfterRun]:
        self.store.dataflow(name)
        first = 5 if below is None else min(5, below - 2)
        return [
            PointAfterRun(
                "count" if epoch >= 0 else "",
                epoch,
                RollbackPoint({"count": epoch + 1}, 60_000 * epoch),
            )
            for epoch in range(first, -1 if drop_later else -2, -1)
        ][:limit]

    def rollbacks(self, name: str) -> Sequence[Generation]:
        self.store.dataflow(name)
        return self.begun

    def correct(
        self,
        name: str,
        stage: str,
        state: str,
        corrections: Sequence[Correction],
        *,
        who: str,
        why: str,
        request: str = "",
    ) -> Corrected:
        self.store.dataflow(name)
        self.asked.append(("correct", name, stage, state, corrections, who, why, request))
        note = CorrectionNote(stage, state, len(corrections), "p", who, why, request)
        self.made.append(Corrected(str(len(self.made)), stage, 3, 0, 0, note))
        return self.made[-1]

    def check_give_back(self, name: str, stage: str) -> None:
        self.store.dataflow(name)

    def give_back(
        self, name: str, stage: str, *, who: str, why: str, request: str = "", tell: Any = None
    ) -> GivenBack:
        self.asked.append(("give_back", name, stage, who, why, request))
        made = self.correct(name, stage, "", (), who=who, why=why, request=request)
        return GivenBack(3, 0, made)

    def try_to_give_back(self, name: str, stage: str, *, tell: Any = None) -> GivenBack:
        self.store.dataflow(name)
        return GivenBack(2, 1)

    def corrections(self, name: str) -> Sequence[Corrected]:
        self.store.dataflow(name)
        return self.made

    def _generation(self, name: str, who: str, why: str, dropped: dict[str, int]) -> Generation:
        position = Position(name, {"count": StagePosition(4, None, {})}, ())
        return Generation(len(self.begun) + 1, position, {"count": 6}, 0, who, why, dropped)
