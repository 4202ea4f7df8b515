"""What publishes a world's flows outside, the receiver of its webhooks, and what both must hold.

Once all is published, folder and table hold exactly the records of their flow, increment by
increment, each once and under the generation that it belongs to; the receiver was sent each, at
least once, and under one id always the same.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import pyarrow.parquet as pq
from deltalake import DeltaTable

from cbp.model.flow.generation import Generation, home_of_increment
from controller.loop import Parts
from controller.loop.records.version_log import Descriptions
from controller.outbound.addresses import AddressRules
from controller.sinks import SinkNotes, SinkPlaces, SinkPublishing
from controller.sinks.delta_table import GENERATION, INCREMENT
from controller.sinks.publishing import Mirrors
from controller.sinks.sink_standing import CHOOSING, standing_of, state_of
from controller.sinks.targets import Targets
from controller.store.records import SinkRecord
from tests.simulation.history import History, require
from tests.simulation.model import Record, multiset
from tests.simulation.world import NAME, World

__all__ = ["Sinker"]

ROUNDS_MAX = 12
PAUSE_SECONDS = 301
NO_END = 1e9

Published = dict[tuple[int, int], list[Record]]
"""Increment and its generation to its records."""


class Sinker:
    """Publishes for one world; after a death with what the new process has.

    Attributes:
        passes: How many passes were made.
        rewrites: How often an operator chose to rewrite what a roll-back undid.
    """

    def __init__(self, world: World) -> None:
        self.world, self.passes, self.rewrites = world, 0, 0
        self._told: dict[str, dict[str, Any]] = {}
        self._made: tuple[Parts, SinkPublishing] | None = None

    def do(self, choice: str) -> None:
        """Make a pass over each sink, after the operator's choice for those that wait for one."""
        sinks = self._sinks()
        for dataflow, sink in sinks.all():
            if choice and self._code(sink) == "sink_rolled_back":
                self.world.store.want_sink(dataflow, sink, desired="running", choice=choice)
                self.rewrites += 1
            self.passes += 1
            sinks.publish(dataflow, sink)
            code = self._code(sink)
            waits = code in CHOOSING - {"sink_rolled_back"}
            require(not waits, f"{sink} waits for a choice that nobody should have to make: {code}")

    def settle(self) -> None:
        """Make passes without faults until everything is published."""
        for _ in range(ROUNDS_MAX if self._documented() else 0):
            self.do("rewrite")
            states = {row.sink: state_of(row) for row in self._rows()}
            if states.keys() == self._documented().keys() and {*states.values()} == {"current"}:
                return
            self.world.sleep(PAUSE_SECONDS)
        errors = {row.sink: standing_of(row).error for row in self._rows()}
        require(not self._documented(), f"sinks do not get on: {errors}")

    def check(self, history: History) -> None:
        """Check what every target holds against the model, once all is published."""
        generations = self.world.log().generations
        for name, sink in self._documented().items():
            flow = sink["flow"]
            expected: Published = {
                (index, home_of_increment(generations, flow, index)): rows
                for index, rows in enumerate(history.replay.outputs(flow))
                if rows
            }
            if sink["to"] == "webhook":
                self._check_told(name, flow, expected, generations)
                continue
            read = self._files if sink["to"] == "parquet" else self._table
            actual = read(sink["path"], flow) if expected else {}
            what = f"P2: {name} has {sorted(actual)} of {flow}, not {sorted(expected)}"
            require(actual.keys() == expected.keys(), what)
            for place, rows in expected.items():
                same = multiset(actual[place]) == multiset(rows)
                require(same, f"P2: {name} has {actual[place]} as {flow} {place}, not {rows}")

    def _check_told(
        self, name: str, flow: str, expected: Published, generations: Sequence[Generation]
    ) -> None:
        told = {
            (one["increment"], one["generation"]): one["records"] for one in self._told.values()
        }
        require(len(told) == len(self._told), f"P2: {name} told of an increment under two ids")
        missing = sorted(expected.keys() - told.keys())
        require(not missing, f"P2: {name} never told of {missing} of {flow}")
        wrong = {place: told[place] for place in expected if told[place] != len(expected[place])}
        require(not wrong, f"P2: {name} told of other numbers of records: {wrong}")
        newest = generations[-1].number if generations else 0
        require(all(gen <= newest for _, gen in told), f"P2: {name} told of no generation: {told}")

    def _files(self, path: str, flow: str) -> Published:
        actual: Published = {}
        for file in sorted((self._root() / path).glob(f"{NAME}.{flow}.*.parquet")):
            number, _, generation = file.name.split(".")[-2].partition("-g")
            actual[int(number), int(generation)] = pq.ParquetFile(file).read().to_pylist()
        return actual

    def _table(self, path: str, flow: str) -> Published:
        actual: Published = {}
        for row in DeltaTable(self._root() / path).to_pyarrow_table().to_pylist():
            place = row.pop(INCREMENT), row.pop(GENERATION)
            actual.setdefault(place, []).append(row)
        return actual

    # what publishes

    def _sinks(self) -> SinkPublishing:
        world, parts = self.world, self.world.parts
        if self._made is not None and self._made[0] is parts:
            return self._made[1]
        self._mount()
        places = SinkPlaces((self._root(),), world.root / "secrets", (Path(world.tables),))
        rules = AddressRules.of(())
        receiver = httpx.Client(transport=httpx.MockTransport(self._receive))
        targets = Targets(places, world.files, world.fence, "http://sim", rules, http=[receiver])
        sinks = SinkPublishing(
            store=world.store,
            catalog=parts.catalog,
            increments=parts.given.engine.increments,
            open_log=parts.open_log,
            exclusion=parts.exclusion,
            notes=SinkNotes(world.files, world.fence),
            make_target=targets.make,
            mirrors=Mirrors(parts.snapshots, parts.given.engine.records, Descriptions(world.files)),
            clock=lambda: world.now,
            pass_seconds=NO_END,
            draw=lambda: 1.0,
            random_hex=parts.given.random_hex,
        )
        self._made = parts, sinks
        return sinks

    def _receive(self, request: httpx.Request) -> httpx.Response:
        told = json.loads(request.content)
        told.pop("time")  # a lost database forgets when an increment came
        key = request.headers["Idempotency-Key"]
        before = self._told.setdefault(key, told)
        require(before == told, f"P2: {key} was told as {before}, and as {told}")
        return httpx.Response(204)

    def _mount(self) -> None:
        """Make the folder of all sinks, durably, as an operator does."""
        self._root().mkdir(exist_ok=True)
        handle = os.open(self.world.root, os.O_RDONLY)
        os.fsync(handle)
        os.close(handle)

    def _root(self) -> Path:
        return self.world.root / "out"

    def _documented(self) -> dict[str, Any]:
        sinks: dict[str, Any] = self.world.plan.document.get("sinks", {})
        return sinks

    def _rows(self) -> list[SinkRecord]:
        return self.world.store.sinks(NAME)

    def _code(self, sink: str) -> str:
        row = next((one for one in self._rows() if one.sink == sink), None)
        error = None if row is None else standing_of(row).error
        return "" if error is None else str(error["error_code"])
