"""Build plans: whether a version can be built beside, with which choice, and why not; reads only.

Guaranteed: a build that lacks something it needs is refused before anything is built
(tests/controller/loop/rebuild/test_build_beside.py, test_seeds.py).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Any

from cbp.errors import ChangeRefusedError, Mistake
from cbp.model.dataflow.dataflow import Dataflow
from cbp.model.version.code_drift import drift, is_code_of
from cbp.model.version.dataflow_shape import shape_of
from cbp.model.version.version_change import Choice
from controller.allowed_folders import AllowedFolders
from controller.loop.operations.version_switch import Changed
from controller.loop.operations.versions import Versions
from controller.loop.rebuild.build_beside import hindrances_of_build
from controller.loop.rebuild.build_in_progress import Planned
from controller.loop.rebuild.build_order import BuildOrder
from controller.loop.rebuild.seeds import Seeds
from controller.loop.records.dataflow_part import DataflowPart
from controller.registry import Registry
from controller.store.base import DataflowRecord

_ABOUT_CHOICE = frozenset({"choice_unknown", "choice_twice", "state_undecided"})
"""Codes of mistakes in the choice itself, for a rebuild in place or beside."""


@dataclass(kw_only=True, eq=False)
class BuildPlans(DataflowPart):
    """Plans builds."""

    versions: Versions
    registry: Registry
    seed_folders: AllowedFolders

    def plan(
        self,
        document: Mapping[str, Any],
        dataflow: Dataflow,
        choice: Choice | None = None,
        seeds: Mapping[str, str] = MappingProxyType({}),
    ) -> Changed:
        """Return the beginning of a version after a swap, and why it is refused; reads only.

        Args:
            choice: The author's choices for single stages. Replaced stages must be named,
                although all tables are built; `None` means that none has to be.

        Raises `NotFoundError`.
        """
        record = self.store.dataflow(dataflow.name)
        planned = self.everything(record, document, dataflow)
        refused = [*planned.plan.refused, *hindrances_of_build(dataflow)]
        if choice is not None:
            asked = self.versions.changes.plan(record, document, dataflow, choice).plan.refused
            refused = [one for one in asked if one.code in _ABOUT_CHOICE] + refused
            refused += (_kept(name) for name in sorted(choice.keep))
        plan = replace(planned.plan, refused=tuple(refused))
        lacking = tuple(self._dated(record, dataflow, planned.succession.refused, seeds))
        firsts = self.firsts(record, seeds.keys() & dataflow.sources.keys())
        lacking += tuple(self.seeds(seeds).mistakes(dataflow, firsts))
        return replace(planned, plan=plan, succession=replace(planned.succession, refused=lacking))

    def seeds(self, paths: Mapping[str, str]) -> Seeds:
        """Return the seeds of one build."""
        return Seeds(paths, self.seed_folders, self.files)

    def firsts(self, record: DataflowRecord, seeds: Collection[str]) -> dict[str, int]:
        """Return the oldest kept increment of each source with a seed."""
        firsts = {}
        for source in seeds:
            kept = self.versions.changes.retained(record, source)
            come = self.store.next_index(record.name, source)
            firsts[source] = kept[0].index if kept else come
        return firsts

    def _dated(
        self,
        record: DataflowRecord,
        dataflow: Dataflow,
        mistakes: Sequence[Mistake],
        seeds: Collection[str],
    ) -> Iterator[Mistake]:
        """Yield the mistakes that hinder a build; for removed input, say since when it is kept.

        Removed input of a source with a seed does not hinder a build. Nor do replaced files: a
        build reads them as they count now.
        """
        for mistake in mistakes:
            _, stage, _, input_ = [*mistake.where.split("."), *[""] * 4][:4]
            node = dataflow.stages.get(stage)
            flow = "" if node is None else node.wiring.get(input_, "")
            if mistake.code == "input_not_retained" and flow in seeds:
                continue
            if mistake.code == "replacement_unfollowed" and flow not in seeds:
                continue
            if mistake.code == "input_not_retained" and flow in dataflow.sources:
                kept = self.versions.changes.retained(record, flow)
                if kept:
                    came = self.store.increment(record.name, flow, kept[0].index).created_at
                    since = (
                        f"Input of {flow!r} is kept from {came:%Y-%m-%d %H:%M} UTC on; earlier "
                        f"input can be read from your own files (cbp rebuild {record.name} "
                        f"--seed {flow}=PATH)"
                    )
                    mistake = replace(mistake, message=f"{mistake.message}. {since}")
            yield mistake

    def everything(
        self, record: DataflowRecord, document: Mapping[str, Any], dataflow: Dataflow
    ) -> Changed:
        """Return the change of a dataflow if all stages of a version start over."""
        present = self.catalog.compiled(record).stages.keys()
        choice = Choice(
            rebuild=frozenset(dataflow.stages.keys() & present),
            retained=frozenset(dataflow.stages.keys() - present),
        )
        return self.versions.changes.plan(record, document, dataflow, choice)

    def again(self, name: str, order: BuildOrder) -> Planned:
        """Check the build of an earlier process again.

        Raises:
            ChangeRefusedError: If the version changed, the dataflow was rolled back, or the
                code differs.
        """
        if not order.is_for(self.store.dataflow(name)):
            message = "the version changed, or the dataflow was rolled back, before the swap"
            mistake = Mistake("beside_outdated", "rebuild", f"{message}; start the rebuild again")
            raise ChangeRefusedError(name, [mistake])
        dataflow = self.registry.compile_registered(
            order.document, partial(is_code_of, order.shape)
        )
        if mistakes := tuple(drift(order.shape, shape_of(dataflow), code=True)):
            raise ChangeRefusedError(name, mistakes)
        planned = self.plan(order.document, dataflow, seeds=order.seeds)
        planned.require_allowed()
        return Planned(dataflow, everything_of(planned), planned.succession.leaders)


def _kept(stage: str) -> Mistake:
    message = (
        "the stage cannot keep its state, because a rebuild beside the current tables builds all "
        "tables of the dataflow. Rebuild the other stages in place (--in-place; REST: without the "
        "parameter `beside`), or rebuild this stage, too"
    )
    return Mistake("beside_keeps", f"stages.{stage}", message)


def everything_of(planned: Changed) -> Choice:
    """Return the choice with which all stages start over."""
    stages = planned.plan.stages
    return Choice(
        rebuild=frozenset(name for name, one in stages.items() if one.state == "rebuilt"),
        retained=frozenset(name for name, one in stages.items() if one.kind == "added"),
    )
