"""The public test kit: run a translator or a dataflow in memory, without Spark or disk.

    >>> from cbp import Input, Output, State, Translate
    >>> class UrlCount(Translate):
    ...     urls = Input("url STRING", route_by="url")
    ...     counts = State("url STRING, n BIGINT")
    ...     totals = Output("url STRING, n BIGINT", key="url")
    ...
    ...     def translate(self, key, group, out):
    ...         n = sum(1 for _ in group.urls) + sum(row.n for row in group.counts)
    ...         out.counts(url=key.url, n=n)
    ...         out.totals(url=key.url, n=n)
    >>> result = run_epochs(UrlCount, [["a", "b", "a"], ["b"]])
    >>> [sorted(map(tuple, epoch)) for epoch in result.outputs["totals"]]
    [[('a', 2), ('b', 1)], [('b', 2)]]
    >>> result.state["counts"]
    [counts(url='a', n=2), counts(url='b', n=2)]
    >>> result.last("totals")
    {'a': 2, 'b': 2}

One property finds most mistakes: any split of the input into epochs gives the same result as one
batch. `check_split` checks it. Draw the epochs with hypothesis (`st.lists(st.lists(...))`), and
also compare `last` or the state with a plain Python computation over all records.

    >>> batch = check_split(UrlCount, [["a", "b"], [], ["a"]])
    >>> batch.last("totals")
    {'a': 2, 'b': 1}

Guaranteed: the semantics of the reference engine (`cbp.engine.reference.engine`). The production
engine is tested against it. Nothing here reads a clock or starts a process.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from types import MappingProxyType
from typing import Any

from cbp.engine.reference.call import record_type
from cbp.engine.reference.engine import ReferenceEngine
from cbp.engine.reference.stage import whole
from cbp.engine.storage.failpoints import POINTS, Crash, Faults, PlannedFaults
from cbp.errors import NotFoundError
from cbp.model.dataflow.dataflow import Dataflow, SourceNode, StageNode
from cbp.model.dataflow.equality import (
    closeness,
    identity,
    output_view,
    state_view,
    view_difference,
)
from cbp.model.dataflow.stage import OutputSpec, StateSpec, TranslatorSpec
from cbp.model.flow.schema import Schema
from cbp.sdk.translate import Declared, spec_of

__all__ = [
    "POINTS",
    "Crash",
    "Faults",
    "ManualClock",
    "PlannedFaults",
    "Result",
    "check_split",
    "run_dataflow",
    "run_epochs",
]

_STAGE = "stage"

Author = Declared | type[Declared]


@dataclass(frozen=True)
class Result:
    """The outputs, the state and the figures of a test run.

    Attributes:
        outputs: Maps each output to a list of epochs. An epoch is a list of records, as named
            tuples in the order of emission.
        state: Maps each state to its records after the last epoch, ordered by all columns.
        figures: Maps each stage to one dict of counts per epoch: `records_in`, `deliveries`,
            `groups`, `records_out`, `state_remote`, `bindings`, `dead_letters`; see
            `ReferenceStage`.
    """

    outputs: Mapping[str, Sequence[Sequence[Any]]]
    state: Mapping[str, Sequence[Any]]
    figures: Mapping[str, Sequence[Mapping[str, int]]]
    _specs: Mapping[str, OutputSpec] = field(repr=False, default_factory=dict)
    _states: Mapping[str, tuple[StateSpec, Schema]] = field(repr=False, default_factory=dict)

    def last(self, output: str) -> dict[Any, Any]:
        """Return the last value per declared key, as an updated view shows it.

        Keys and values are tuples of their columns, or the bare value if there is one column.

        Raises:
            NotFoundError: There is no such output.
            ValueError: The output declares no key.
        """
        if output not in self.outputs:
            raise NotFoundError(kind="output", name=output)
        if output not in self._specs or not (keys := self._specs[output].key):
            message = f'output {output!r} declares no key; declare Output(..., key="...")'
            raise ValueError(message)
        rest = [n for n in self._specs[output].schema.names if n not in keys]
        view = {}
        for epoch in self.outputs[output]:
            for row in epoch:
                view[_columns(row, keys)] = _columns(row, rest)
        return view

    def difference(self, other: Result) -> str:
        """Describe the first difference from another result; `""` if they are equal.

        `cbp.model.dataflow.equality` defines equality.

        Raises:
            NotFoundError: The other result lacks a state or an output of this one.
        """
        for name, (kept, key) in self._states.items():
            close = closeness(kept, key.names)
            mine, its = (state_view(_of(of.state, name), close) for of in (self, other))
            if difference := view_difference(mine, its, close):
                return f"state {name}: {difference}"
        for name, spec in self._specs.items():
            close = closeness(spec, spec.key)
            mine, its = (output_view(spec, _of(of.outputs, name), close) for of in (self, other))
            if difference := view_difference(mine, its, close):
                return f"output {name}: {difference}"
        return ""


def _of(flows: Mapping[str, Any], name: str) -> Any:
    if name not in flows:
        raise NotFoundError(kind="flow", name=name)
    return flows[name]


def _columns(row: Any, names: Sequence[str]) -> Any:
    values = tuple(getattr(row, name) for name in names)
    return values[0] if len(values) == 1 else values


def run_epochs(
    translator: Author,
    epochs: Iterable[Any],
    *,
    at_once: bool = False,
    close: bool = False,
    parts_of: Callable[[list[Any]], list[list[Any]]] = whole,
) -> Result:
    """Run one translator over some epochs, one increment per input and epoch.

    Args:
        translator: An instance, or a class whose constructor needs no arguments.
        epochs: For each epoch the records of the only input; or, with several inputs, a
            dict from input to records (an input left out gets an empty increment). A
            record is a dict by column, a tuple, or the bare value of a single column.
        at_once: If true, all increments arrive before the first run, so that input and the
            messages of loopbacks mix. If false, each increment arrives once the stage has
            nothing left to do.
        close: Whether a close follows the last increment, so that framed inputs read it.
        parts_of: As in `run_dataflow`.

    Returns:
        Outputs and state by their declared names. The stage is named `stage` in the figures.

    Raises:
        DefinitionError: The translator's declarations are wrong.
        AuthorCodeError: The translator's code failed.
        NotFoundError: An epoch names an input that does not exist.
        TypeError: A record does not fit its input.
    """
    spec = spec_of(translator() if isinstance(translator, type) else translator)
    increments: dict[str, list[Iterable[Any]]] = {name: [] for name in _outside(spec)}
    for epoch in epochs:
        given = _by_input(epoch, spec)
        for name, records in increments.items():
            records.append(given.get(name, ()))
    result = run_dataflow(
        _one_stage(spec), increments, at_once=at_once, close=close, parts_of=parts_of
    )
    prefix = f"{_STAGE}."
    return Result(
        {n.removeprefix(prefix): v for n, v in result.outputs.items()},
        {n.removeprefix(prefix): v for n, v in result.state.items()},
        result.figures,
        {n.removeprefix(prefix): v for n, v in result._specs.items()},
        {n.removeprefix(prefix): v for n, v in result._states.items()},
    )


def check_split(translator: Author, epochs: Sequence[Any]) -> Result:
    """Check that these epochs, one by one or all at once, give the same result as one batch.

    The batch is run twice, to find results that are random or depend on values kept between
    runs. It is also run without combiners, with combiners over all records of a group, and with
    combiners over parts of them. The result must be the same each time.

    Args:
        translator: As in `run_epochs`.
        epochs: As in `run_epochs`.

    Returns:
        The result of the batch, to compare with an oracle.

    Raises:
        AssertionError: Results differ. Names the first state or output that differs, and where.
    """
    spec = spec_of(translator() if isinstance(translator, type) else translator)
    everything: dict[str, list[Any]] = {name: [] for name in _outside(spec)}
    for epoch in epochs:
        for name, records in _by_input(epoch, spec).items():
            everything[name].extend(records)
    batch = run_epochs(translator, [everything], parts_of=_apart)
    dice = random.Random(7)
    ways = {"the same once more": _apart, "combined as a whole": whole}
    if any(input_.combine for input_ in spec.inputs):
        ways |= {f"combined in parts ({n})": partial(_parts, dice) for n in range(3)}
    for how, parts_of in ways.items():
        again = run_epochs(translator, [everything], parts_of=parts_of)
        if problem := batch.difference(again):
            message = f"{spec.name}: one batch against {how}: {problem}"
            raise AssertionError(message)
    for at_once in (False, True):
        split = run_epochs(translator, epochs, at_once=at_once)
        if problem := batch.difference(split):
            how = "all at once" if at_once else "one by one"
            message = f"{spec.name}: one batch against {len(epochs)} epochs {how}: {problem}"
            raise AssertionError(message)
    return batch


def _apart(rows: list[Any]) -> list[list[Any]]:
    return [[row] for row in rows]


def _parts(dice: random.Random, rows: list[Any]) -> list[list[Any]]:
    """Shuffle and cut at random places, since a combiner can be given any records of a group."""
    parts: list[list[Any]] = []
    for row in dice.sample(rows, len(rows)):
        if not parts or dice.random() < 0.4:
            parts.append([])
        parts[-1].append(row)
    return parts


def run_dataflow(
    dataflow: Dataflow,
    increments: Mapping[str, Iterable[Iterable[Any]]],
    *,
    at_once: bool = False,
    close: bool = False,
    parts_of: Callable[[list[Any]], list[list[Any]]] = whole,
) -> Result:
    """Run a whole dataflow; the n-th increments of all sources arrive at the same time.

    Each increment stands for a file with its own name. As in the service, an increment is left
    out if its source says `duplicates: skip` or `quarantine` and an earlier increment of that
    source had the same records in the same order.

    Args:
        dataflow: From a builder or a document.
        increments: Maps each source to its increments; each is an iterable of records.
        at_once: As in `run_epochs`.
        close: As in `run_epochs`.
        parts_of: Cuts the records of a group into parts. A combiner is called once for each
            part of two or more records. Default: one part with all records.

    Returns:
        Outputs by flow (`stage.output`), state by `stage.state`.

    Raises:
        AuthorCodeError: The author's code failed.
        NotFoundError: There is no such source.
        TypeError: A record does not fit its source.
    """
    engine = ReferenceEngine(dataflow, parts_of=parts_of)
    for source in increments:
        if source not in dataflow.sources:
            raise NotFoundError(kind="source", name=source)
    waiting = {source: list(arrivals) for source, arrivals in increments.items()}
    known: dict[str, set[Any]] = {source: set() for source in waiting}
    for number in range(max(map(len, waiting.values()), default=0)):
        for source, arrivals in waiting.items():
            if number < len(arrivals):
                rows = engine.rows_of(source, arrivals[number])
                content = identity(rows)
                if content not in known[source] or dataflow.sources[source].duplicates == "accept":
                    engine.feed(source, rows)
                known[source].add(content)
        if not at_once:
            engine.run_until_idle()
    for source in dataflow.sources if close else ():
        engine.close(source)
    engine.run_until_idle()
    return _result(dataflow, engine)


def _result(dataflow: Dataflow, engine: ReferenceEngine) -> Result:
    outputs: dict[str, list[list[Any]]] = {}
    state: dict[str, list[Any]] = {}
    specs: dict[str, OutputSpec] = {}
    states: dict[str, tuple[StateSpec, Schema]] = {}
    for name, node in dataflow.stages.items():
        for output in node.translator.outputs:
            flow = f"{name}.{output.name}"
            epochs = engine.outputs(flow)
            outputs[flow] = [_named(epoch, output.name, output.schema) for epoch in epochs]
            if output.name not in {loopback.name for loopback in node.translator.loopbacks}:
                specs[flow] = output
        for kept in node.translator.states:
            records = engine.state(name, kept.name)
            state[f"{name}.{kept.name}"] = _named(records, kept.name, kept.schema)
            states[f"{name}.{kept.name}"] = kept, node.translator.key_of(kept)
    figures = {name: engine.figures(name) for name in dataflow.stages}
    return Result(outputs, state, figures, specs, states)


def _named(records: Iterable[Mapping[str, Any]], flow: str, schema: Schema) -> list[Any]:
    make = record_type(flow, schema)._make
    return [make(map(record.__getitem__, schema.names)) for record in records]


def _by_input(epoch: Any, spec: TranslatorSpec) -> Mapping[str, Iterable[Any]]:
    names = _outside(spec)
    if not isinstance(epoch, Mapping):
        if len(names) > 1:
            message = (
                f"{spec.name} has the inputs {', '.join(names)}: give each epoch as a dict of them"
            )
            raise TypeError(message)
        return {names[0]: epoch}
    for name in epoch:
        if name not in names:
            raise NotFoundError(kind="input", name=name)
    return epoch


def _outside(spec: TranslatorSpec) -> list[str]:
    """Return the inputs that are fed from outside: all except loopbacks."""
    return [input_.name for input_ in spec.inputs if not input_.loopback]


def _one_stage(spec: TranslatorSpec) -> Dataflow:
    """Return a dataflow with one stage and one source per input, named like the input."""
    sources = {name: SourceNode(name, spec.input(name).schema) for name in _outside(spec)}
    node = StageNode(_STAGE, spec, MappingProxyType({name: name for name in sources}))
    return Dataflow("in_memory", sources, {_STAGE: node})


class ManualClock:
    """A clock that only `advance` moves; call it to read the time.

    >>> clock = ManualClock(datetime(2026, 1, 1, tzinfo=UTC))
    >>> clock.advance(90)
    >>> clock().isoformat()
    '2026-01-01T00:01:30+00:00'
    """

    def __init__(self, now: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        if now.tzinfo is None:
            message = "give an aware datetime"
            raise ValueError(message)
        self._now = now.astimezone(UTC)

    def __call__(self) -> datetime:
        """Return the time, in UTC."""
        return self._now

    def advance(self, by: float | timedelta) -> None:
        """Move forward by seconds or by a time span; never backward.

        Raises:
            ValueError: `by` is negative.
        """
        span = by if isinstance(by, timedelta) else timedelta(seconds=by)
        if span < timedelta(0):
            message = "a clock does not go back"
            raise ValueError(message)
        self._now += span
