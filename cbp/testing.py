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

The test that finds most mistakes: any split of the input into epochs gives the answer of
one batch. `check_split` makes it, for epochs drawn with hypothesis (`st.lists(st.lists(...))`);
compare `last` or the state with plain Python over all records besides.

    >>> batch = check_split(UrlCount, [["a", "b"], [], ["a"]])
    >>> batch.last("totals")
    {'a': 2, 'b': 1}

Guarantees: the semantics of the reference engine (`cbp.engine.reference`), to which the
product's engine is held by its own tests. Nothing here reads a clock or starts a process.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any

from cbp.engine.faults import POINTS, Crash, Faults, PlannedFaults
from cbp.engine.reference import ReferenceEngine
from cbp.engine.reference_call import record_type
from cbp.errors import NotFoundError
from cbp.model.dataflow import Dataflow, SourceNode, StageNode
from cbp.model.equality import closeness, output_view, state_view, view_difference
from cbp.model.schema import Schema
from cbp.model.stage import OutputSpec, StateSpec, TranslatorSpec
from cbp.sdk.translate import Declared

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
    """What came out.

    Attributes:
        outputs: Output to epochs to records, as named tuples in the order of emission.
        state: State to records after the last epoch, ordered by all columns.
        figures: Stage to what each of its epochs counted: `records_in`, `deliveries`, `groups`,
            `records_out`, `state_remote`, `bindings`, `dead_letters`; see `ReferenceStage`.
    """

    outputs: Mapping[str, Sequence[Sequence[Any]]]
    state: Mapping[str, Sequence[Any]]
    figures: Mapping[str, Sequence[Mapping[str, int]]]
    _specs: Mapping[str, OutputSpec] = field(repr=False, default_factory=dict)
    _states: Mapping[str, tuple[StateSpec, Schema]] = field(repr=False, default_factory=dict)

    def last(self, output: str) -> dict[Any, Any]:
        """Return the last value per declared key: what an updated view shows.

        Key and value are tuples of their columns; a single column stands for itself.

        Raises:
            NotFoundError: There is no such output.
            ValueError: The output declares no key.
        """
        if output not in self.outputs:
            raise NotFoundError(kind="output", name=output)
        if output not in self._specs or not (keys := self._specs[output].key):
            message = f'output {output!r} declares no key; declare Output(..., key="...")'
            raise ValueError(message)
        view = {}
        for epoch in self.outputs[output]:
            for row in epoch:
                rest = [name for name in row._fields if name not in keys]
                view[_columns(row, keys)] = _columns(row, rest)
        return view

    def difference(self, other: Result) -> str:
        """Say where another result differs, by `cbp.model.equality`; `""` if nowhere.

        Raises:
            NotFoundError: It lacks a state or an output of this one.
        """
        for name, (kept, key) in self._states.items():
            close = closeness(kept, key.names)
            mine, its = (state_view(_of(of.state, name), close) for of in (self, other))
            if found := view_difference(mine, its, close):
                return f"state {name}: {found}"
        for name, spec in self._specs.items():
            close = closeness(spec, spec.key)
            mine, its = (output_view(spec, _of(of.outputs, name), close) for of in (self, other))
            if found := view_difference(mine, its, close):
                return f"output {name}: {found}"
        return ""


def _of(flows: Mapping[str, Any], name: str) -> Any:
    if name not in flows:
        raise NotFoundError(kind="flow", name=name)
    return flows[name]


def _columns(row: Any, names: Sequence[str]) -> Any:
    values = tuple(getattr(row, name) for name in names)
    return values[0] if len(values) == 1 else values


def run_epochs(
    translator: Author, epochs: Iterable[Any], *, at_once: bool = False, close: bool = False
) -> Result:
    """Run one translator over some epochs, one increment per input and epoch.

    Args:
        translator: An instance, or a class that is made without arguments.
        epochs: For each epoch the records of the only input; or, with several inputs, a
            dict from input to records (an input left out gets an empty increment). A
            record is a dict by column, a tuple, or the bare value of a single column.
        at_once: All increments arrive before the first run, instead of each when the stage
            has nothing left to do; with loopbacks, input and messages then mix.
        close: The last increment is followed by a close, which lets framed inputs read
            their last increment.

    Returns:
        Outputs and state by the names that the translator declares; its stage is `stage`.

    Raises:
        DefinitionError: The translator's declarations are wrong.
        AuthorCodeError: Its code failed.
        NotFoundError: An epoch names an input that does not exist.
        TypeError: A record does not fit its input.
    """
    spec = (translator() if isinstance(translator, type) else translator).spec()
    increments: dict[str, list[Iterable[Any]]] = {name: [] for name in _outside(spec)}
    for epoch in epochs:
        given = _by_input(epoch, spec)
        for name, records in increments.items():
            records.append(given.get(name, ()))
    result = run_dataflow(_one_stage(spec), increments, at_once=at_once, close=close)
    prefix = f"{_STAGE}."
    return Result(
        {n.removeprefix(prefix): v for n, v in result.outputs.items()},
        {n.removeprefix(prefix): v for n, v in result.state.items()},
        result.figures,
        {n.removeprefix(prefix): v for n, v in result._specs.items()},
        {n.removeprefix(prefix): v for n, v in result._states.items()},
    )


def check_split(translator: Author, epochs: Sequence[Any]) -> Result:
    """Check that these epochs, one by one or all at once, give the answer of one batch.

    Args:
        translator: As of `run_epochs`.
        epochs: As of `run_epochs`.

    Returns:
        The result of the batch, to compare with an oracle.

    Raises:
        AssertionError: Naming the first state or output that differs, and where.
    """
    spec = (translator() if isinstance(translator, type) else translator).spec()
    whole: dict[str, list[Any]] = {name: [] for name in _outside(spec)}
    for epoch in epochs:
        for name, records in _by_input(epoch, spec).items():
            whole[name].extend(records)
    batch = run_epochs(translator, [whole])
    for at_once in (False, True):
        split = run_epochs(translator, epochs, at_once=at_once)
        if found := batch.difference(split):
            how = "all at once" if at_once else "one by one"
            message = f"{spec.name}: one batch against {len(epochs)} epochs {how}: {found}"
            raise AssertionError(message)
    return batch


def run_dataflow(
    dataflow: Dataflow,
    increments: Mapping[str, Iterable[Iterable[Any]]],
    *,
    at_once: bool = False,
    close: bool = False,
) -> Result:
    """Run a whole dataflow; the n-th increments of all sources arrive at the same time.

    Args:
        dataflow: As a builder or a document gives it.
        increments: Source to its increments; each is an iterable of records.
        at_once: As of `run_epochs`.
        close: As of `run_epochs`.

    Returns:
        Outputs by flow (`stage.output`), state by `stage.state`.

    Raises:
        AuthorCodeError: The author's code failed.
        NotFoundError: There is no such source.
        TypeError: A record does not fit its source.
    """
    engine = ReferenceEngine(dataflow)
    waiting = {source: list(arrivals) for source, arrivals in increments.items()}
    for number in range(max(map(len, waiting.values()), default=0)):
        for source, arrivals in waiting.items():
            if number < len(arrivals):
                engine.feed(source, arrivals[number])
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
    return [record_type(flow, schema)(**record) for record in records]


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
    """Return the inputs that are fed from outside; loopbacks feed themselves."""
    return [input_.name for input_ in spec.inputs if not input_.loopback]


def _one_stage(spec: TranslatorSpec) -> Dataflow:
    """Return a dataflow whose sources are named like the inputs of the only stage."""
    sources = {name: SourceNode(name, spec.input(name).schema) for name in _outside(spec)}
    node = StageNode(_STAGE, spec, MappingProxyType({name: name for name in sources}))
    return Dataflow("in_memory", sources, {_STAGE: node})


class ManualClock:
    """A clock that moves only when told; call it to read the time.

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
