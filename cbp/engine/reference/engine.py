"""The reference engine: a dataflow in plain Python, in memory, slow and obvious.

It is the oracle for every other engine, and the public test kit runs on it. One epoch of a stage
is in `cbp.engine.reference.stage`; this module has the flows and connectors between the stages.

Guarantees: deterministic; an epoch that fails changes nothing, so it can be run again.
Absent on purpose: files, Arrow and parallelism. With the physical engines it shares only the model,
the values and the hash (tests/cbp/engine/reference/test_engine.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

from cbp.engine.columnar.values import Row, own_row, typed_row
from cbp.engine.reference.call import author_record
from cbp.engine.reference.routing import key_of
from cbp.engine.reference.stage import ReferenceStage, ordered_rows, whole
from cbp.engine.reference.views import read_changes
from cbp.errors import NotFoundError
from cbp.model.dataflow.dataflow import Dataflow
from cbp.model.dataflow.equality import identity
from cbp.model.dataflow.run_context import NO_RUN, context_of
from cbp.model.dataflow.stage import InputSpec, LookupSpec
from cbp.model.flow.connector import Connector, Decision
from cbp.model.flow.framing import Framing, Keyed, framing_keys, segments
from cbp.model.flow.increment import DataFile, Increment
from cbp.model.flow.punctuation import Punctuation
from cbp.model.flow.schema import Schema
from cbp.model.graph.cycles import components, predecessors
from cbp.model.schedule.runnable_call import call_runnable
from cbp.model.schedule.timers import woken


class ReferenceEngine:
    """Executes a whole dataflow in memory; not thread-safe.

    `time` is the time of the next runs, an aware `datetime` in UTC; the start of 1970 unless it is
    set.

    Example:
        engine = ReferenceEngine(dataflow)
        engine.feed("urls", [{"url": "a"}, {"url": "b"}])
        engine.run_until_idle()
        engine.outputs("count.totals")
    """

    def __init__(
        self,
        dataflow: Dataflow,
        punctuations: Sequence[Punctuation] = (),
        parts_of: Callable[[list[Any]], list[list[Any]]] = whole,
    ) -> None:
        """Begin with empty flows and states.

        Args:
            punctuations: Punctuations that were recorded elsewhere; each closes frames once all
                increments of its flow before it have arrived.
            parts_of: Cuts the records of a group into the lists that its combiner is called with.
        """
        self._dataflow, self._punctuations = dataflow, punctuations
        self._schemas = dataflow.flows()
        self._stages = {
            n: ReferenceStage(n, s.translator, parts_of=parts_of, set_aside_max=s.set_aside_max)
            for n, s in dataflow.stages.items()
        }
        self._figures: dict[str, list[Mapping[str, int]]] = {name: [] for name in self._stages}
        self._contents: dict[str, list[list[Row]]] = {flow: [] for flow in self._schemas}
        self._gone: dict[str, list[Row]] = {}
        self._read: dict[tuple[str, str], list[Increment]] = {}
        self._connectors = {
            name: {input_.name: Connector(input_.name) for input_ in stage.translator.inputs}
            for name, stage in dataflow.stages.items()
        }
        self._framings = {
            (name, spec.name): Framing()
            for name, stage in dataflow.stages.items()
            for spec in stage.translator.framed
        }
        self.time = NO_RUN.time
        self._memos: dict[str, Any] = dict.fromkeys(dataflow.stages)
        # If both can run, the stage of a looked-up table runs before the stages that read it.
        read = {n: {**s.wiring, **s.lookups} for n, s in dataflow.stages.items()}
        self._order = list(chain.from_iterable(components(predecessors(read))))

    def feed(self, source: str, records: Iterable[Any], gone: Iterable[Any] = ()) -> None:
        """Add one increment to a source; it retracts the records `gone` of earlier increments.

        A record is a dict by column name (a missing column is null), a tuple by position, or the
        bare value if the source has one column.

        Raises:
            NotFoundError: If there is no such source.
            TypeError: If a record does not fit the source's schema, or `records` is a single
                record instead of a list.
        """
        self._append(source, self.rows_of(source, records), self.rows_of(source, gone))

    def rows_of(self, source: str, records: Iterable[Any]) -> list[Row]:
        """Return records as typed rows of a source; arguments and errors as for `feed`."""
        if source not in self._dataflow.sources:
            raise NotFoundError(kind="source", name=source)
        schema = self._schemas[source]
        if isinstance(records, str | bytes | Mapping):
            got = repr(records)[:200]
            message = f"expected a list of records as an increment of {source!r}, got {got}"
            raise TypeError(message)
        return [typed_row(_by_position(r, schema), schema) for r in records]

    def close(self, source: str) -> None:
        """Close the open frames of a source, as a punctuation at this point does."""
        if source not in self._dataflow.sources:
            raise NotFoundError(kind="source", name=source)
        for consumer in self._dataflow.consumers(source):
            self._close(consumer)

    def step(self, limits: Mapping[str, int] | None = None) -> int:
        """Run each runnable stage once, upstream first, up to its limit; return the epochs."""
        epochs = 0
        for name in self._order:
            done = len(self._figures[name])
            if done < (limits or {}).get(name, done + 1):
                epochs += self._run(name)
        return epochs

    def run_until_idle(self, limits: Mapping[str, int] | None = None) -> int:
        """Run stages until none is runnable; return the number of epochs.

        If the author's code fails (`AuthorCodeError`), its input stays queued.
        """
        epochs = 0
        while ran := self.step(limits):
            epochs += ran
        return epochs

    def outputs(self, flow: str) -> list[list[dict[str, Any]]]:
        """Return a flow's records as dicts, per epoch; for a source, per fed increment."""
        if flow not in self._schemas:
            raise NotFoundError(kind="flow", name=flow)
        schema = self._schemas[flow]
        return [[_as_dict(row, schema) for row in increment] for increment in self._contents[flow]]

    def state(self, stage: str, state: str) -> list[dict[str, Any]]:
        """Return all records of a state as dicts, ordered by all columns, nulls first."""
        if stage not in self._stages or state not in self._stages[stage].state:
            raise NotFoundError(kind="state", name=f"{stage}.{state}")
        schema = self._dataflow.stages[stage].translator.state(state).schema
        rows = [row for rows in self._stages[stage].state[state].values() for row in rows]
        return [_as_dict(row, schema) for row in ordered_rows(rows, schema)]

    def figures(self, stage: str) -> list[Mapping[str, int]]:
        """Return the figures of each epoch of a stage; see `ReferenceStage.figures`."""
        self._stage(stage)
        return self._figures[stage]

    def _stage(self, name: str) -> ReferenceStage:
        if name not in self._stages:
            raise NotFoundError(kind="stage", name=name)
        return self._stages[name]

    def set_aside(self, stage: str) -> list[dict[str, Any]]:
        """Return the records that a stage set aside, in the order in which they are given back.

        Each has `input`, `key`, `record` and `code`, as in the stage's table
        (`cbp.model.dataflow.set_aside`), with the values of key and record by column.
        """
        aside, spec = self._stage(stage).aside, self._dataflow.stages[stage].translator
        return [
            {
                "input": one.input or None,
                "key": one.key and spec.key and _as_dict(one.key, spec.key),
                "record": _as_dict(one.row, spec.input(one.input).schema) if one.input else None,
                "code": one.code,
            }
            for one in aside
        ]

    def take_over(self, dataflow: Dataflow) -> None:
        """Execute other code of the same stages from now on; states stay as they are."""
        self._dataflow = dataflow
        for name, node in dataflow.stages.items():
            self._stages[name].spec = node.translator

    def give_back(self, stage: str) -> None:
        """Read the set-aside records of a stage again, in a separate epoch."""
        waiting: dict[str, list[Row]] = {}
        for one in self._stage(stage).aside:
            if one.input:
                waiting.setdefault(one.input, []).append(one.row)
        inputs = {name: [rows] for name, rows in waiting.items()}
        outputs = self._execute(stage, inputs, {}, {}, gives_back=True)
        for output, rows in outputs.items():
            self._append(f"{stage}.{output}", rows)

    def _run(self, name: str) -> bool:
        runnable = self._dataflow.stages[name].runnable
        decision = call_runnable(name, runnable, self._connectors[name], self._memos[name])
        if not decision.runnable and self._stages[name].woken(self.time):
            decision = woken(self._memos[name])
        elif not decision.runnable:
            return False
        self._apply(name, decision)
        return True

    def _apply(self, name: str, decision: Decision) -> None:
        connectors, node = self._connectors[name], self._dataflow.stages[name]
        inputs: dict[str, list[list[Row]]] = {}
        read: dict[str, list[Increment]] = {}
        for input_ in node.translator.inputs:
            flow = node.wiring[input_.name]
            read[input_.name] = list(decision.increments(connectors[input_.name]))
            inputs[input_.name] = [
                self._input_rows(flow, one.without_refused(), input_) for one in read[input_.name]
            ]
        loopbacks = {i.name: decision.read.get(i.name, ()) for i in node.translator.loopbacks}
        anew = self._compute_anew(name, inputs, read)
        outputs = self._execute(name, inputs, loopbacks, read, anew=anew)
        for input_name, increments in read.items():
            self._read.setdefault((name, input_name), []).extend(increments)
        for input_name, connector in connectors.items():
            connectors[input_name] = connector.after(
                decision.read.get(input_name, ()), decision.remove.get(input_name, ())
            )
        self._memos[name] = decision.memo
        for output, rows in outputs.items():
            self._append(f"{name}.{output}", rows)

    def _execute(
        self,
        name: str,
        inputs: Mapping[str, list[list[Row]]],
        loopbacks: Mapping[str, Sequence[int]],
        read: Mapping[str, Sequence[Increment]],
        *,
        anew: set[Row] | None = None,
        gives_back: bool = False,
    ) -> dict[str, list[Row]]:
        translator, epoch = self._dataflow.stages[name].translator, len(self._figures[name])
        context = context_of(translator, epoch=epoch, time=self.time, inputs=read)
        lookups = {spec.name: self._looked_up(name, spec) for spec in translator.lookups}
        outputs = self._stages[name].run(
            inputs,
            epochs=loopbacks,
            context=context,
            lookups=lookups,
            anew=anew,
            gives_back=gives_back,
            refused=dict(self._refused(name, read)),
        )
        self._figures[name].append(self._stages[name].figures)
        return outputs

    def _compute_anew(
        self, name: str, inputs: dict[str, list[list[Row]]], read: Mapping[str, Sequence[Increment]]
    ) -> set[Row] | None:
        """Give an epoch that reads a replacement all records of its groups; return their keys."""
        if not any(one.gone for increments in read.values() for one in increments):
            return None
        node = self._dataflow.stages[name]
        spec = node.translator
        gone = {
            one.name: self._gone_rows(node.wiring[one.name], one, read[one.name])
            for one in spec.inputs
        }
        keys = {
            key
            for one in spec.inputs
            for row in (*chain.from_iterable(inputs[one.name]), *gone[one.name])
            for key in key_of(name, spec, one, row)
        }
        for one in spec.inputs:
            flow, before = node.wiring[one.name], self._read.get((name, one.name), [])
            rows = [row for past in before for row in self._input_rows(flow, past, one)]
            rows += chain.from_iterable(inputs[one.name])
            gone_before = self._gone_rows(flow, one, before)
            taken = Counter(identity(row) for row in (*gone_before, *gone[one.name]))
            left = []
            for row in rows:
                if taken[identity(row)]:
                    taken[identity(row)] -= 1
                elif keys.intersection(key_of(name, spec, one, row)):
                    left.append(row)
            inputs[one.name] = [left]
        return keys

    def _gone_rows(
        self, flow: str, input_: InputSpec, increments: Iterable[Increment]
    ) -> list[Row]:
        rows = [row for one in increments for row in self._gone.get(one.name, ())]
        return _project(rows, self._schemas[flow], input_)

    def _looked_up(self, stage: str, spec: LookupSpec) -> dict[Row, list[Row]]:
        writer, _, state = self._dataflow.stages[stage].lookups[spec.name].partition(".")
        schema = self._dataflow.stages[writer].translator.state(state).schema
        at = [schema.index(name) for name in spec.schema.names]
        return {
            key: [tuple([row[i] for i in at]) for row in rows]
            for key, rows in self._table(stage, spec.name).items()
        }

    def _table(self, stage: str, lookup: str) -> Mapping[Row, list[Row]]:
        """Return the records of a looked-up table as it is now, by key."""
        writer, _, state = self._dataflow.stages[stage].lookups[lookup].partition(".")
        return self._stages[writer].state[state]

    def _input_rows(self, flow: str, increment: Increment, input_: InputSpec) -> list[Row]:
        schema = self._schemas[flow]
        return _project(read_changes(self._rows(flow, increment), schema, input_), schema, input_)

    def _append(self, flow: str, rows: list[Row], gone: Sequence[Row] = ()) -> None:
        index = len(self._contents[flow])
        self._contents[flow].append(rows)
        # These files are not on disk: they only carry the index and the number of records.
        files = (DataFile(f"{flow}/{index}", len(rows), 0),) if rows else ()
        taken = (DataFile(f"{flow}/{index}", len(gone), 0),) if gone else ()
        self._gone[f"{flow}/{index}"] = list(gone)
        increment = Increment(flow, index, index, files, gone=taken)
        for stage, input_ in self._dataflow.receivers(increment):
            if (stage, input_) in self._framings:
                self._enqueue(stage, input_, self._frames(stage, input_, increment))
                self._show_framing((stage, input_))
            else:
                self._enqueue(stage, input_, [increment])
        here = [p for p in self._punctuations if p.flow == flow and p.at == index + 1]
        for consumer in self._dataflow.consumers(flow) if here else ():
            if any(punctuation.meant_for(*consumer, flow) for punctuation in here):
                self._close(consumer)

    def _close(self, consumer: tuple[str, str]) -> None:
        if consumer in self._framings:
            self._framings[consumer], done = self._framings[consumer].close()
            self._enqueue(*consumer, done)
            self._show_framing(consumer)

    def _show_framing(self, consumer: tuple[str, str]) -> None:
        """Give the connector its framing, since Runnables ask whether the input is closed."""
        stage, input_ = consumer
        of_stage = self._connectors[stage]
        of_stage[input_] = replace(of_stage[input_], framing=self._framings[consumer])

    def _enqueue(self, stage: str, input_: str, increments: Iterable[Increment]) -> None:
        connectors = self._connectors[stage]
        for increment in increments:
            connectors[input_] = connectors[input_].append(increment)

    def _frames(self, stage: str, input_: str, increment: Increment) -> tuple[Increment, ...]:
        spec = self._dataflow.stages[stage].translator.input(input_)
        framing, frame_by = self._framings[stage, input_], spec.frame_by
        assert frame_by is not None, "only framed inputs have a framing"
        rows = _project(self._rows(increment.flow, increment), self._schemas[increment.flow], spec)
        records = (author_record(input_, spec.schema, row) for row in rows)
        refuses = self._dataflow.stages[stage].sets_aside
        keys, memo = framing_keys(
            records, frame_by, framing.memo, stage=stage, input_=input_, refuses=refuses
        )
        cuts = segments([Keyed.of(file, keys) for file in increment.files], ordered=frame_by.memo)
        self._framings[stage, input_], done = framing.take(increment, cuts, memo)
        return done

    def _refused(
        self, stage: str, read: Mapping[str, Sequence[Increment]]
    ) -> Iterator[tuple[str, list[tuple[Row, tuple[str, str]] | None]]]:
        """Yield each framed input, and for each record the error if it has no framing key."""
        node = self._dataflow.stages[stage]
        for input_ in node.translator.framed:
            flow = node.wiring[input_.name]
            every: list[tuple[Row, tuple[str, str]] | None] = []
            for increment in read.get(input_.name, ()):
                for file in increment.files:
                    one = replace(increment, files=(replace(file, refused=None),))
                    error = file.refused
                    rows = self._input_rows(flow, one, input_)
                    every += [None if error is None else (row, error) for row in rows]
            yield input_.name, every

    def _rows(self, flow: str, increment: Increment) -> list[Row]:
        contents = self._contents[flow]
        return [
            row
            for file in increment.files
            for row in contents[int(file.path.rpartition("/")[2])][file.start : file.stop]
        ]


def _by_position(record: Any, schema: Schema) -> Sequence[Any]:
    if isinstance(record, Mapping):
        if unknown := [name for name in record if name not in schema]:
            message = f"the source has no column {unknown[0]!r}; use {', '.join(schema.names)}"
            raise TypeError(message)
        return [record.get(name) for name in schema.names]
    values = record if isinstance(record, tuple) else (record,)
    if len(values) != len(schema):
        message = f"{record!r} is not a record of ({schema})"
        raise TypeError(message)
    return values


def _project(increment: Sequence[Row], flow: Schema, input_: InputSpec) -> list[Row]:
    """Return the columns that an input declares, as copies, since authors may change values."""
    wanted = input_.schema
    at = [flow.index(name) for name in wanted.names]
    return [own_row(tuple([row[i] for i in at]), wanted) for row in increment]


def _as_dict(row: Row, schema: Schema) -> dict[str, Any]:
    return dict(zip(schema.names, row, strict=True))
