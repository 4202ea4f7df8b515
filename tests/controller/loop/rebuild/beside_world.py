"""A world whose dataflow is built beside, swapped in, and compared."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cbp import Input, Output, State, Translate, View
from cbp.engine.storage.failpoints import NO_FAULTS
from cbp.model.verification import Comparison
from controller.loop.rebuild.build_in_progress import RebuildJob
from controller.loop.rebuild.build_order import open_order
from tests.controller.changing import Changing
from tests.controller.changing import document as document_of


class Largest(Translate):
    """Keep the largest sum per first letter, of what changes in a view."""

    counts = Input("word STRING, n BIGINT", route_by="word")
    best = View("word STRING, n BIGINT", key="word")
    seen = Output("word STRING, n BIGINT")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        counts = list(group.counts)
        out.best(word=key.word, n=max(r.n for r in (*counts, *group.best)))
        for record in counts:
            out.seen(word=record.word, n=record.n)


def document(sum: str = "sum", **more: Any) -> dict[str, Any]:
    chain = {"best": {"translator": "largest", "inputs": {"counts": "sum.totals"}}}
    return document_of(sum=sum, **chain, **more)


class Tripled(Translate):
    """Add up three times each number per word."""

    items = Input("word STRING, n BIGINT", route_by="word")
    sums = State("word STRING, n BIGINT")
    totals = Output("word STRING, n BIGINT", key="word")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        n = sum(3 * r.n for r in group.items) + sum(r.n for r in group.sums)
        out.sums(word=key.word, n=n)
        out.totals(word=key.word, n=n)


class Viewed(Translate):
    """Add up numbers per word, in a view alone."""

    items = Input("word STRING, n BIGINT", route_by="word")
    sums = View("word STRING, n BIGINT", key="word")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        n = sum(r.n for r in group.items) + sum(r.n for r in group.sums)
        out.sums(word=key.word, n=n)


class Beside(Changing):
    def __init__(self, root: Path, **more: Any) -> None:
        super().__init__(root, **more)
        self.translators |= {"largest": Largest, "tripled": Tripled, "viewed": Viewed}
        self.restart()

    def start(self, wanted: Any) -> RebuildJob:
        dataflow = self.controller.validate(wanted)
        return self.controller.rebuild_jobs.start(wanted, dataflow)

    def shown(self, job: RebuildJob) -> RebuildJob:
        return self.controller.rebuild_jobs.show("d", job.id)

    def build(self, wanted: Any) -> RebuildJob:
        """Build a version beside, until it is ready."""
        job = self.shown(self.start(wanted))
        assert job.status == "ready", job.error
        return job

    def swap(self, job: RebuildJob) -> RebuildJob:
        self.controller.rebuild_jobs.swap("d", job.id)
        if (error := self.shown(job).error) is not None:
            raise error
        return self.shown(job)

    def seen(self) -> dict[str, list[str]]:
        """Return what readers see in every table, without epochs."""
        record, seen = self.store.dataflow("d"), dict[str, list[str]]()
        for node in self.controller.dataflow("d").stages.values():
            for spec in node.translator.states:
                rows = self.engine.records.read_state(record.folder, node, spec.name)
                seen[f"{node.name}.{spec.name}"] = sorted(map(repr, rows))
            for output in node.translator.outputs:
                one = Comparison(node.name, output.name, "records")
                read = self.engine.verification.contents(record.folder, node, one)
                rows = [row for batch in read.part(0, epochs=False) for row in batch]
                seen[f"{node.name}.{output.name} flow"] = sorted(map(repr, rows))
        return seen


def arrive(world: Beside, first: int, last: int) -> None:
    for number in range(first, last):
        if world.store.next_index("d", "a") <= number:
            world.arrive("d", "a", ("x", number), (f"w{number % 3}", 1))


def from_scratch(tmp_path: Path, wanted: Any, most: int) -> dict[str, list[str]]:
    world = Beside(tmp_path)
    world.controller.register(wanted)
    for number in range(most):
        arrive(world, number, number + 1)
        world.ticks()
    seen = world.seen()
    world.close()
    return seen


class Failing(Tripled):
    """Cannot do it."""

    def translate(self, key: Any, group: Any, out: Any) -> None:
        raise ValueError(key.word)


def begun(world: Beside) -> None:
    world.controller.register(document())
    arrive(world, 0, 4)
    world.ticks()


def restart(world: Beside) -> None:
    world.faults.to = NO_FAULTS
    world.restart()
    world.controller.recover()


def jobs(world: Beside) -> list[RebuildJob]:
    return world.controller.rebuild_jobs.all("d")


def order(world: Beside) -> Any:
    return open_order(world.files, world.store.dataflow("d").folder)


def needs(world: Beside) -> str:
    """Return the status of the build that needs a person; `""` if none does."""
    job = world.controller.rebuild_jobs.needs_person(world.store.dataflow("d"))
    return "" if job is None else job.status
