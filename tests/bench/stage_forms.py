"""What each ready stage on views costs groupwise and on columns: one more record of many groups.

    python -m tests.bench.stage_forms --groups 100000 --rounds 5
    python -m tests.bench.stage_forms --groups 10 --before 10000 --left --stages join_inner,best

Each group has some records before, which come in one run. A round gives every group one more
record, which is one run, too; with `--left` the first input alone has many records and gets more:
every other has one in each group. Both forms run in turn in one process, on tables of their own,
and must give equally many changes. A figure is the median over the rounds of the processor's
seconds in the tasks of a run, which include what both forms have in common: records are read,
routed and written.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Any

from cbp import DataflowBuilder
from cbp.engine.direct import LocalEngine
from cbp.model.dataflow.dataflow import Dataflow
from cbp.model.dataflow.nodes import SourceNode, StageNode
from cbp.sdk.translate import Declared
from stages.translators.latest import Latest
from tests.bench.in_turn import task_seconds
from tests.driver import Driver
from tests.stages.ready_stages import FORMS, TABLE, ddl, stages

NAMES = (
    "join_inner",
    "bags_left",
    "as_of",
    "dimension",
    "best",
    "distinct",
    "windows",
    "sessions",
    "firsts",
    "latest",
)
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
STAGE = "stage"
Row = dict[str, Any]


def value(column: str, group: int, number: int, *, span: int) -> Any:
    """Return the value of a column in one record of a group, which has fewer than `span`."""
    values: Mapping[str, Any] = {
        "id": span * group + number,
        "pair": f"pair {group:09d}",
        "at": BEGIN + timedelta(seconds=3 * number),
        "since": BEGIN + timedelta(seconds=3 * number),
        "cents": number,
        "rate": number,
        "part": float(number),
        "label": "label",
        "sign": 1,
    }
    return values[column]


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much there is of what.

    Attributes:
        groups: Number of groups.
        before: Records of each group before the first round.
        rounds: Number of rounds.
        left: Whether only the first input has that many records, and gets more.
    """

    groups: int
    before: int
    rounds: int
    left: bool = False


class Candidate:
    """One form of a stage on its own tables, of which every group has some records."""

    def __init__(self, stage: Declared, folder: Path, sizes: Sizes) -> None:
        self.dataflow, self.sizes = one_stage(stage), sizes
        engine = LocalEngine(cache=f"{folder}/cache")
        self.driver = Driver(engine, self.dataflow, folder / "tables")
        self.round(0, sizes.before)

    def round(self, first: int, count: int = 1) -> tuple[Any, ...]:
        """Give every group more records; return the figures that both forms must share."""
        sizes = self.sizes
        for at, (source, node) in enumerate(self.dataflow.sources.items()):
            few = source == "table" or (sizes.left and at)
            if few and first:
                continue
            numbers, names = range(first, first + (1 if few else count)), node.schema.names
            span = sizes.before + sizes.rounds
            rows = [
                {name: value(name, group, number, span=span) for name in names}
                for group in range(sizes.groups)
                for number in numbers
            ]
            self.driver.feed(source, rows)
        self.driver.run_until_idle()
        figures = self.driver.figures[-1]
        return figures["groups"], figures["records_out"]


def one_stage(stage: Declared) -> Dataflow:
    """Return a dataflow with a source of signed records for each input of the stage."""
    spec = stage.spec()
    if spec.lookups:
        flow = DataflowBuilder("one")
        views = {}
        for name, schema, key in (("left", str(spec.inputs[0].schema), "id"), *_TABLES):
            columns = ", ".join(c for c in schema.split(", ") if not c.startswith("sign "))
            rows = flow.source(name, columns)
            views[name] = flow.stage(f"{name}s", Latest(columns, key), rows=rows).latest
        flow.stage(STAGE, stage, rows=views["left"], dimension=views["table"])
        return flow.build()
    sources = {one.name: SourceNode(one.name, one.schema) for one in spec.inputs}
    node = StageNode(STAGE, spec, MappingProxyType({name: name for name in sources}))
    return Dataflow("one", MappingProxyType(sources), MappingProxyType({STAGE: node}))


_TABLES = (("table", ddl(TABLE), "pair"),)


def measure(name: str, sizes: Sizes) -> tuple[float, float]:
    """Return the seconds of a round, groupwise and on columns."""
    groupwise, parameters = stages()[name]
    forms = (groupwise, FORMS[groupwise])
    with tempfile.TemporaryDirectory() as folder, task_seconds() as spent:
        candidates = [
            Candidate(form(**parameters), Path(folder) / f"{at}", sizes)
            for at, form in enumerate(forms)
        ]
        times: tuple[list[float], list[float]] = ([], [])
        for number in range(sizes.before, sizes.before + sizes.rounds):
            shared = set()
            for each, mine in zip(candidates, times, strict=True):
                spent.clear()
                shared.add(each.round(number))
                mine.append(spent[STAGE])
            assert len(shared) == 1, f"{name}: the forms differ: {shared}"
    return statistics.median(times[0]), statistics.median(times[1])


def main() -> None:
    """Print a line for each stage."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--groups", type=int, default=100_000)
    parser.add_argument("--before", type=int, default=2, help="records that a group has")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--stages", default=",".join(NAMES))
    parser.add_argument("--left", action="store_true", help="more records of the first input alone")
    options = parser.parse_args()
    sizes = Sizes(options.groups, options.before, options.rounds, options.left)
    print("| stage | groupwise, s | on columns, s | ratio |")
    print("| --- | --- | --- | --- |")
    for name in options.stages.split(","):
        slow, fast = measure(name, sizes)
        print(f"| {name} | {slow:.4f} | {fast:.4f} | {slow / fast:.2f} |", flush=True)


if __name__ == "__main__":
    main()
