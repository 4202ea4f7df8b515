"""Runnables: ready-made rules that start a stage and choose the input of its runs.

    class Difference(Translate):
        runnable = Align()              # in a document: `runnable: align`

A rule is called with the connectors of all inputs and its memo, and returns a `Decision`. It sees
the waiting increments, never the time. `RunAll` is the default. For anything else, an author writes
a method `runnable(self, connectors, memo)` of the translator.

`RULES` maps the names in documents to the rules: `runnable: {count_window: {size: 3}}`.

Source: CBP (SoCC'10), sections 2.2, 2.4 and 4.1; phases: section 3.1.2; windows: ours.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass, field, fields, replace
from itertools import accumulate, chain, pairwise, takewhile
from typing import Any, ClassVar, Protocol

from cbp.errors import AlignmentError
from cbp.errors.message_limits import quoted
from cbp.model.flow.connector import Connector, Decision
from cbp.model.flow.increment import FramingKey, Increment
from cbp.model.json_fields import default_of

Connectors = Mapping[str, Connector]


class Rule(Protocol):
    """A ready-made Runnable: a plain value, which lists the inputs that it names."""

    @property
    def named(self) -> tuple[str, ...]:
        """Inputs that the rule names; each must exist."""
        ...

    @property
    def timeless(self) -> bool:
        """Whether the decision depends only on the queued increments and their order, not on times.

        Every run then reads the same increments, whenever runs are started.
        """
        ...

    @property
    def split_free(self) -> bool:
        """Whether all runs together read each record once, however the input is split."""
        ...

    def __call__(self, connectors: Connectors, memo: Any) -> Decision:
        """Decide; see `cbp.model.flow.connector.Runnable`."""


class _OfInputs:
    """A rule that reads only the inputs in `inputs`, or all inputs if that is empty."""

    inputs: tuple[str, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "inputs", _names(self.inputs))

    @property
    def named(self) -> tuple[str, ...]:
        return self.inputs

    def _chosen(self, connectors: Connectors) -> Connectors:
        return {n: c for n, c in connectors.items() if n in (self.inputs or connectors)}


@dataclass(frozen=True)
class RunAll:
    """Run when every input has an increment; read and remove the oldest of each.

    Args:
        batch: Maximum number of increments of each input in one run (>= 1). A run reads the
            same number from each input, so that inputs stay in step.
        bytes: Maximum size of all increments that one run reads, if it reads several of an input;
            0 means any.

    Source: CBP (SoCC'10), section 2.4, `RunnableAll`, the default.
    """

    named: ClassVar[tuple[str, ...]] = ()
    split_free: ClassVar[bool] = True  # every increment is read, once

    batch: int = 1
    bytes: int = 0

    def __post_init__(self) -> None:
        _at_least(1, batch=self.batch)
        _at_least(0, bytes=self.bytes)

    @property
    def timeless(self) -> bool:
        """Whether the batch is 1; a larger batch depends on how much is queued."""
        return self.batch == 1

    def __call__(self, connectors: Connectors, memo: Any) -> Decision:
        """Read as many of each input as the shortest queue holds, within `batch` and `bytes`."""
        missing = _empty(connectors)
        if missing or not connectors:
            return Decision(memo=memo, waits_for=_waits(missing))
        queues = {name: c.unread[: self.batch] for name, c in connectors.items()}
        turns = zip(*queues.values(), strict=False)  # ends with the shortest queue
        sizes = (sum(one.bytes for one in turn) for turn in turns)
        within = takewhile(lambda total: not self.bytes or total <= self.bytes, accumulate(sizes))
        count = max(1, sum(1 for _ in within))
        return _consume({name: queue[:count] for name, queue in queues.items()}, memo)


@dataclass(frozen=True)
class RunAny:
    """Run when any input has an increment; read and remove the oldest of each that has one.

    Args:
        batch: Maximum number of increments of each input in one run (>= 1).
    """

    named: ClassVar[tuple[str, ...]] = ()
    timeless: ClassVar[bool] = False  # it reads what is queued
    split_free: ClassVar[bool] = True  # every increment is read, once

    batch: int = 1

    def __post_init__(self) -> None:
        _at_least(1, batch=self.batch)

    def __call__(self, connectors: Connectors, memo: Any) -> Decision:
        """Read queued increments, up to `batch` of each input."""
        reads = {n: c.unread[: self.batch] for n, c in connectors.items() if c.unread}
        if not reads:
            return Decision(memo=memo, waits_for=_waits(connectors, any_of=True))
        return _consume(reads, memo)


@dataclass(frozen=True)
class StaticTable:
    """Read some inputs (the tables) in every run and keep them; the others decide when to run.

    A table consists of all increments of its input. A new one does not start a run; the next run
    reads it.

    Args:
        rule: Decides about the other inputs.
        latest: Whether a newer increment replaces the table instead of adding to it. Empty
            increments replace nothing.
    """

    timeless: ClassVar[bool] = False  # a run reads as much of the tables as is queued
    split_free: ClassVar[bool] = False  # a table counts only for the runs after it arrived

    tables: tuple[str, ...]
    rule: Rule = field(default_factory=RunAll)
    latest: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "tables", _names(self.tables))
        _not_empty(tables=self.tables)

    @property
    def named(self) -> tuple[str, ...]:
        """The tables, and the inputs that the other rule names."""
        return (*self.tables, *self.rule.named)

    def __call__(self, connectors: Connectors, memo: Any) -> Decision:
        """Ask the other rule, and add the tables to its choice."""
        tables = {name: connectors[name] for name in self.tables}
        moving = {name: c for name, c in connectors.items() if name not in tables}
        decision = self.rule(moving, memo)
        if not decision.runnable:
            return decision
        if missing := [name for name, table in tables.items() if not table.queue]:
            named = f"table{'s' if len(missing) > 1 else ''} {quoted(missing)}"
            return Decision(memo=memo, waits_for=f"waits for the static {named}")
        read, remove = dict(decision.read), dict(decision.remove)
        for name, table in tables.items():
            read[name] = _indexes(table.waiting)
            if self.latest:
                filled = _indexes(i for i in table.waiting if i.records) or read[name]
                remove[name] = tuple(i for i in read[name] if i != filled[-1])
                read[name] = filled[-1:]
        return Decision(read, remove, decision.memo)


@dataclass(frozen=True)
class Align(_OfInputs):
    """Read increments with equal framing keys in one run, the smallest key first.

    Runs once every aligned input has an increment. Each input that begins with the smallest key
    has its oldest increment read and removed; the other inputs are not read. Once all aligned
    inputs are closed, empty inputs no longer hold up the others. Keys of an input can repeat but
    not go backwards. Memo: the last key that was read.

    Args:
        inputs: The aligned inputs; empty means all inputs. Other inputs are never read.

    Source: CBP (SoCC'10), section 2.2, figure 4.
    """

    timeless: ClassVar[bool] = True  # it waits until nothing smaller can come
    split_free: ClassVar[bool] = True  # every increment is read, once

    inputs: tuple[str, ...] = ()

    def __call__(self, connectors: Connectors, memo: Any) -> Decision:
        """Compare the first key of each input; raise `AlignmentError` if keys go backwards."""
        aligned = self._chosen(connectors)
        for connector in aligned.values():
            _check_ascending(connector, connector.framing_keys, memo)
        heads = {n: c.framing_keys[0] for n, c in aligned.items() if c.unread}
        missing = _empty(aligned)
        if not heads:
            return Decision(memo=memo, waits_for=_waits(missing))
        smallest = _smallest(heads)
        if missing and not _all_closed(aligned):
            return Decision(memo=memo, waits_for=_waits_for_key(smallest, missing, heads))
        reads = {n: aligned[n].unread[:1] for n, key in heads.items() if key == smallest}
        return _consume(reads, smallest)


@dataclass(frozen=True)
class CountWindow(_OfInputs):
    """Read the last `size` increments of an input, `slide` new ones at a time.

    Args:
        size: Number of increments in the window of each windowed input (>= 1).
        slide: Number of increments removed after a run; 0 means all, so that windows do not
            overlap.
        inputs: The windowed inputs; empty means all inputs. Other inputs are never read.
    """

    timeless: ClassVar[bool] = True  # it waits until its windows are full
    split_free: ClassVar[bool] = False  # another split gives other windows

    size: int
    slide: int = 0
    inputs: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _OfInputs.__post_init__(self)
        _at_least(1, size=self.size)
        _at_least(0, slide=self.slide)
        if self.slide > self.size:
            message = f"slide is {self.slide}, but must not be greater than size ({self.size})"
            raise ValueError(message)

    def __call__(self, connectors: Connectors, memo: Any) -> Decision:
        """Run once the window of every input is full."""
        windows = {n: c.waiting[: self.size] for n, c in self._chosen(connectors).items()}
        short = {n: self.size - len(w) for n, w in windows.items() if len(w) < self.size}
        if short or not windows:
            wanted = ", ".join(f"{count} more on {name}" for name, count in short.items())
            return Decision(memo=memo, waits_for=f"waits for increments: {wanted}")
        out = self.slide or self.size
        return Decision(
            {name: _indexes(window) for name, window in windows.items()},
            {name: _indexes(window[:out]) for name, window in windows.items()},
            memo,
        )


@dataclass(frozen=True)
class KeyWindow(_OfInputs):
    """Read consecutive increments whose framing keys are in one window in one run.

    A window is complete once an increment of another window follows it. With several inputs,
    windows are aligned as in `Align`: once every input has an increment, the smallest window is
    read from all inputs that begin with it, and the other inputs are not read. The windows of an
    input must then not go backwards. Memo: the last window that was read.

    Args:
        width: For numbers: keys with equal `key // width` are one window (>= 1).
        prefix: For texts: keys with this many equal first characters are one window; 0 means only
            equal keys are. For keys such as `2026-11-21 10:00`, 10 characters are the day.
        inputs: The windowed inputs; empty means all inputs. Other inputs are never read.
    """

    timeless: ClassVar[bool] = True  # it waits until its windows are complete
    split_free: ClassVar[bool] = False  # windows hold increments, and the last one stays queued

    width: int = 1
    prefix: int = 0
    inputs: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _OfInputs.__post_init__(self)
        _at_least(1, width=self.width)
        _at_least(0, prefix=self.prefix)

    def __call__(self, connectors: Connectors, memo: Any) -> Decision:
        """Run once the smallest window is complete; raise `AlignmentError` as `Align` does."""
        windowed = self._chosen(connectors)
        labels = {n: tuple(map(self._label, c.unread)) for n, c in windowed.items()}
        heads = {n: keys[0] for n, keys in labels.items() if keys}
        if not heads:
            return Decision(memo=memo, waits_for=_waits(labels))
        if len(windowed) == 1:  # no other input to align with: any order
            return self._read(windowed, memo)
        for name, keys in labels.items():
            _check_ascending(windowed[name], keys, memo)
        smallest = _smallest(heads)
        first = [name for name, label in heads.items() if label == smallest]
        if (missing := _empty(windowed)) and not _all_closed(windowed):
            key = windowed[first[0]].framing_keys[0]
            return Decision(memo=memo, waits_for=_waits_for_key(key, missing, heads))
        decision = self._read({name: windowed[name] for name in first}, memo)
        return replace(decision, memo=smallest) if decision.runnable else decision

    def _read(self, inputs: Connectors, memo: Any) -> Decision:
        """Read the oldest window of these inputs, once all of them are complete."""
        windows = {name: self._oldest(c) for name, c in inputs.items()}
        if open_ := [name for name, window in windows.items() if not window]:
            return Decision(memo=memo, waits_for=_waits_for_window(open_))
        return _consume(windows, memo)

    def _oldest(self, connector: Connector) -> tuple[Increment, ...]:
        """Return the increments of the oldest window; none while it can still grow.

        A close ends a frame, and so a window of one key. A wider window can continue after it.
        """
        waiting = connector.unread
        window = tuple(takewhile(lambda i: self._label(i) == self._label(waiting[0]), waiting))
        ends = connector.is_closed and self.width == 1 and not self.prefix
        return window if ends or len(window) < len(waiting) else ()

    def _label(self, increment: Increment) -> FramingKey:
        key = increment.framing_key
        if isinstance(key, int):
            return key // self.width
        return key[: self.prefix] if self.prefix else key


@dataclass(frozen=True)
class Phase:
    """One phase of `Phases`: only its inputs are read while it lasts.

    Args:
        reads: Inputs of the phase. The oldest increments of each are read and removed.
        until: Input that ends the phase: the phase lasts, even without work, until this input
            has an increment, which is then read alone. Without `until`, the phase ends when
            its inputs are empty.
        drop: Inputs whose increments are removed unread when `until` ends the phase.
        batch: Maximum number of increments of each input in one run; 0 means all queued ones,
            so that messages of several runs are read together.
    """

    reads: tuple[str, ...]
    until: str = ""
    drop: tuple[str, ...] = ()
    batch: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "reads", _names(self.reads))
        object.__setattr__(self, "drop", _names(self.drop))
        _not_empty(reads=self.reads)
        _at_least(0, batch=self.batch)


@dataclass(frozen=True)
class Phases:
    """Run phases in turn, again and again; inputs of other phases wait.

    The memo is the number of the phase. The next phase is the first one, from the current one
    on, that has an increment on an input. So a phase without work is skipped, and new input of the
    first phase waits until the other phases are done.

    Args:
        phases: In order. One or several input names stand for `Phase(reads=...)`.

    Source: CBP (SoCC'10), section 3.1.2, incremental PageRank.
    """

    timeless: ClassVar[bool] = False  # a phase whose input is not there yet is skipped
    split_free: ClassVar[bool] = True  # every increment is read once, or dropped by `Phase.drop`

    phases: tuple[Phase, ...]

    def __post_init__(self) -> None:
        made = tuple(map(_phase, self.phases))
        object.__setattr__(self, "phases", made)
        _not_empty(phases=made)

    @property
    def named(self) -> tuple[str, ...]:
        """Every input of every phase."""
        names = ((*phase.reads, *phase.drop, phase.until) for phase in self.phases)
        return tuple(filter(None, chain.from_iterable(names)))

    def __call__(self, connectors: Connectors, memo: Any) -> Decision:
        """Find the phase that has something to read."""
        now = memo if isinstance(memo, int) and memo < len(self.phases) else 0
        present = self.phases[now]
        if present.until and memo is not None:
            return self._bounded(present, now, connectors)
        for step in range(len(self.phases)):
            number = (now + step) % len(self.phases)
            if chosen := self._reads(self.phases[number], connectors):
                return _consume(chosen, number)
        every = [name for phase in self.phases for name in phase.reads]
        return Decision(memo=memo, waits_for=_waits(dict.fromkeys(every), any_of=True))

    def _bounded(self, phase: Phase, now: int, connectors: Connectors) -> Decision:
        if end := connectors[phase.until].unread[:1]:
            # After the last phase comes the first one, which can be this one again.
            decision = _consume({phase.until: end}, (now + 1) % len(self.phases))
            dropped = {name: _indexes(connectors[name].unread) for name in phase.drop}
            return Decision(decision.read, {**decision.remove, **dropped}, decision.memo)
        if chosen := self._reads(phase, connectors):
            return _consume(chosen, now)
        words = f"waits in phase {now + 1} of {len(self.phases)} for an increment on "
        return Decision(memo=now, waits_for=words + " or ".join((*phase.reads, phase.until)))

    def _reads(self, phase: Phase, connectors: Connectors) -> dict[str, tuple[Increment, ...]]:
        most = phase.batch or None
        return {n: connectors[n].unread[:most] for n in phase.reads if connectors[n].unread}


RULES: Mapping[str, type] = {
    "align": Align,
    "count_window": CountWindow,
    "key_window": KeyWindow,
    "phases": Phases,
    "run_all": RunAll,
    "run_any": RunAny,
    "static_table": StaticTable,
}


_NAMES: Mapping[type, str] = {**{rule: name for name, rule in RULES.items()}, Phase: "phase"}


def is_ready_rule(function: object) -> bool:
    """Return whether a Runnable and all rules inside it are ready-made, and so answer quickly."""
    return type(function) in RULES.values() and all(
        is_ready_rule(part) for part in vars(function).values() if callable(part)
    )


def can_start(rule: Any, fed: Collection[str], inputs: Sequence[str]) -> bool:
    """Return whether a ready-made rule can start a run if only some inputs have increments."""
    if isinstance(rule, RunAny):
        return bool(fed)
    if isinstance(rule, Phases):
        return any(name in fed for phase in rule.phases for name in phase.reads)
    if isinstance(rule, StaticTable):
        moving = [name for name in inputs if name not in rule.tables]
        tables = all(name in fed for name in rule.tables)
        return tables and can_start(rule.rule, [n for n in fed if n in moving], moving)
    wanted = getattr(rule, "inputs", ()) or inputs
    return all(name in fed for name in wanted)


def rule_text(value: Any) -> str:
    """Return a ready-made rule as a stable text, such as `count_window(size=3)`.

    Arguments with their default value are left out, so that a new argument in a later release does
    not change the text.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, tuple):
        return f"[{', '.join(map(rule_text, value))}]"
    if type(value) not in _NAMES:
        return str(value)
    name, given = _NAMES[type(value)], {f: getattr(value, f.name) for f in fields(value)}
    changed = [f"{f.name}={rule_text(one)}" for f, one in given.items() if one != default_of(f)]
    return f"{name}({', '.join(changed)})" if changed else name


def _consume(increments: Mapping[str, Sequence[Increment]], memo: Any) -> Decision:
    """Read and remove the same increments of each input."""
    chosen = {name: _indexes(some) for name, some in increments.items()}
    return Decision(chosen, chosen, memo)


def _indexes(increments: Iterable[Increment]) -> tuple[int, ...]:
    return tuple(increment.index for increment in increments)


def _empty(connectors: Connectors) -> list[str]:
    return [name for name, connector in connectors.items() if not connector.unread]


def _all_closed(connectors: Connectors) -> bool:
    return all(connector.is_closed for connector in connectors.values())


def _waits(names: Iterable[str], *, any_of: bool = False) -> str:
    return "waits for an increment on " + (" or " if any_of else ", ").join(names)


def _waits_for_key(key: FramingKey, missing: Iterable[str], others: Collection[str]) -> str:
    have = "has one" if len(others) == 1 else "have one"
    return (
        f"waits for an increment on {quoted(missing)} with framing key {key} or a later one; "
        f"{quoted(others)} {have}"
    )


def _waits_for_window(names: Iterable[str]) -> str:
    return f"waits until each of these inputs has an increment of a later window: {quoted(names)}"


def _check_ascending(connector: Connector, keys: Sequence[FramingKey], last: Any) -> None:
    """Refuse a key that is smaller than the key before it or than the last key read."""
    numbers = [one.index for one in connector.unread]
    befores = keys if last is None else (last, *keys)
    for (before, key), number in zip(pairwise(befores), numbers[last is None :], strict=True):
        if type(before) is not type(key) or key < before:  # type: ignore[operator]
            error = AlignmentError(connector.input, key=key, before=before)
            error.index = number
            raise error


def _smallest(heads: Mapping[str, FramingKey]) -> FramingKey:
    """Return the smallest key; refuse a mix of numbers and texts, which has no order."""
    (first, smallest), *others = heads.items()
    for name, key in others:
        if type(key) is not type(smallest):
            raise AlignmentError(name, key=key, before=smallest, of=first)
        if key < smallest:  # type: ignore[operator]
            first, smallest = name, key
    return smallest


def _names(value: Any) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value)


def _phase(value: Any) -> Phase:
    if isinstance(value, Phase):
        return value
    if isinstance(value, Mapping):
        return Phase(**value)
    return Phase(reads=value)


def _at_least(least: int, **value: int) -> None:
    ((name, given),) = value.items()
    if not isinstance(given, int) or isinstance(given, bool) or given < least:
        message = f"{name} is {given!r}, but must be a whole number of at least {least}"
        raise ValueError(message)


def _not_empty(**value: Sized) -> None:
    ((name, given),) = value.items()
    if not given:
        message = f"{name} is empty; give at least one"
        raise ValueError(message)
