"""Ready rules for when a stage runs and on what: values that an author names.

    class Difference(Translate):
        runnable = Align()              # in a document: `runnable: align`

A rule is called with the connectors of all inputs and its memo, and answers with a
`Decision`. `RunAll` is the default. What none of them says, an author writes as a
method `runnable(self, connectors, memo)` of the translator.

`RULES` names them for documents: `runnable: {count_window: {size: 3}}`.

Absent on purpose: clocks. A rule sees what waits, never the time.

Source: CBP (SoCC'10), sections 2.2, 2.4 and 4.1; phases: section 3.1.2; windows: ours.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from itertools import pairwise, takewhile
from typing import Any, ClassVar, Protocol

from cbp.errors import AlignmentError
from cbp.model.connector import Connector, Decision
from cbp.model.increment import FramingKey, Increment

__all__ = [
    "RULES",
    "Align",
    "CountWindow",
    "KeyWindow",
    "Phase",
    "Phases",
    "Rule",
    "RunAll",
    "RunAny",
    "StaticTable",
    "is_ready_rule",
    "rule_text",
]

Connectors = Mapping[str, Connector]


class Rule(Protocol):
    """A Runnable that is a plain value, and knows which inputs it names."""

    @property
    def named(self) -> tuple[str, ...]:
        """Inputs that the rule names; each must exist."""
        ...

    @property
    def timeless(self) -> bool:
        """Whether runs read the same, one by one, whenever they are started.

        What it answers depends on what is queued and in which order, never on when it came.
        """
        ...

    @property
    def split_free(self) -> bool:
        """Whether all runs together read the same, each record once, however input is split."""
        ...

    def __call__(self, connectors: Connectors, memo: Any) -> Decision:
        """Decide; see `cbp.model.connector.Runnable`."""
        ...


@dataclass(frozen=True)
class RunAll:
    """Run when every input has an increment; read and remove the oldest of each.

    Args:
        batch: Most increments of each input in one run (>= 1); the same number of each,
            so that inputs stay in step.

    Source: CBP (SoCC'10), section 2.4, `RunnableAll`, the default.
    """

    split_free: ClassVar[bool] = True  # every increment is read, once

    batch: int = 1

    def __post_init__(self) -> None:
        _at_least(1, batch=self.batch)

    @property
    def named(self) -> tuple[str, ...]:
        """Name no input."""
        return ()

    @property
    def timeless(self) -> bool:
        """Tell that one of each is the same whenever; a batch is what is there."""
        return self.batch == 1

    def __call__(self, connectors: Connectors, memo: Any) -> Decision:
        """Take as many of each input as the emptiest one holds."""
        missing = _empty(connectors)
        if missing or not connectors:
            return Decision(memo=memo, waits_for=_waits(missing))
        count = min(self.batch, *(len(connector.unread) for connector in connectors.values()))
        return _consume({n: c.unread[:count] for n, c in connectors.items()}, memo)


@dataclass(frozen=True)
class RunAny:
    """Run when any input has an increment; read and remove the oldest of each that has.

    Args:
        batch: Most increments of each input in one run (>= 1).
    """

    timeless: ClassVar[bool] = False  # it takes what is there
    split_free: ClassVar[bool] = True  # every increment is read, once

    batch: int = 1

    def __post_init__(self) -> None:
        _at_least(1, batch=self.batch)

    @property
    def named(self) -> tuple[str, ...]:
        """Name no input."""
        return ()

    def __call__(self, connectors: Connectors, memo: Any) -> Decision:
        """Take what is there."""
        found = {n: c.unread[: self.batch] for n, c in connectors.items() if c.unread}
        if not found:
            return Decision(memo=memo, waits_for=_waits(connectors, any_of=True))
        return _consume(found, memo)


@dataclass(frozen=True)
class StaticTable:
    """Read some inputs in every run and keep them; the others decide when to run.

    A table is all increments of its input. New ones wake nobody: the next run reads them.

    Args:
        tables: Names of the inputs that are tables.
        rule: Decides over the other inputs.
        latest: A newer increment replaces the table instead of adding to it, unless it
            is empty.
    """

    timeless: ClassVar[bool] = False  # a run reads as much of the tables as is there
    split_free: ClassVar[bool] = False  # a table counts for the runs behind it only

    tables: tuple[str, ...]
    rule: Rule = field(default_factory=RunAll)
    latest: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "tables", _names(self.tables))
        _at_least(1, tables=len(self.tables))

    @property
    def named(self) -> tuple[str, ...]:
        """Name the tables, and what the other rule names."""
        return (*self.tables, *self.rule.named)

    def __call__(self, connectors: Connectors, memo: Any) -> Decision:
        """Ask the other rule, and add the tables to what it reads."""
        tables = {name: connectors[name] for name in self.tables}
        moving = {name: c for name, c in connectors.items() if name not in tables}
        decision = self.rule(moving, memo)
        if not decision.runnable:
            return decision
        if missing := [name for name, table in tables.items() if not table.queue]:
            return Decision(memo=memo, waits_for=f"waits for the table {_quoted(missing)}")
        read, remove = dict(decision.read), dict(decision.remove)
        for name, table in tables.items():
            read[name] = _indexes(table.waiting)
            if self.latest:
                filled = _indexes(i for i in table.waiting if i.records) or read[name]
                remove[name] = tuple(i for i in read[name] if i != filled[-1])
                read[name] = filled[-1:]
        return Decision(read, remove, decision.memo)


@dataclass(frozen=True)
class Align:
    """Read together what has equal framing keys; the smallest key first.

    Runs once every aligned input has an increment. Of those that begin with the smallest
    key, the oldest is read and removed; an input that has none of this key is left alone.
    Keys of an input may repeat, but not go backwards. Memo: the last key that was read.

    Args:
        inputs: The aligned inputs; none: all of them. Others are never read.

    Source: CBP (SoCC'10), section 2.2, figure 4.
    """

    timeless: ClassVar[bool] = True  # it waits until nothing smaller can come
    split_free: ClassVar[bool] = True  # every increment is read, once

    inputs: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "inputs", _names(self.inputs))

    @property
    def named(self) -> tuple[str, ...]:
        """Name the aligned inputs."""
        return self.inputs

    def __call__(self, connectors: Connectors, memo: Any) -> Decision:
        """Compare the keys at the heads; raises `AlignmentError` when keys go backwards."""
        aligned = {n: c for n, c in connectors.items() if n in (self.inputs or connectors)}
        for connector in aligned.values():
            _check_ascending(connector.input, connector.framing_keys, memo)
        heads = {n: c.framing_keys[0] for n, c in aligned.items() if c.unread}
        missing = _empty(aligned)
        if not heads:
            return Decision(memo=memo, waits_for=_waits(missing))
        smallest = _smallest(heads)
        if missing:
            words = f"waits for {_quoted(missing)} to reach {smallest}; {_are_there(heads)}"
            return Decision(memo=memo, waits_for=words)
        found = {n: aligned[n].unread[:1] for n, key in heads.items() if key == smallest}
        return _consume(found, smallest)


@dataclass(frozen=True)
class CountWindow:
    """Read the last `size` increments of an input, `slide` new ones at a time.

    Args:
        size: Increments of one window, of every windowed input (>= 1).
        slide: How many of them leave after a run; none: all, windows do not overlap.
        inputs: The windowed inputs; none: all of them. Others are never read.
    """

    timeless: ClassVar[bool] = True  # it waits until its windows are full
    split_free: ClassVar[bool] = False  # windows are made of increments

    size: int
    slide: int = 0
    inputs: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "inputs", _names(self.inputs))
        _at_least(1, size=self.size)
        _at_least(0, slide=self.slide)
        _at_least(self.slide, size=self.size)

    @property
    def named(self) -> tuple[str, ...]:
        """Name the windowed inputs."""
        return self.inputs

    def __call__(self, connectors: Connectors, memo: Any) -> Decision:
        """Run once the window of every input is full."""
        windows = {
            n: c.waiting[: self.size]
            for n, c in connectors.items()
            if n in (self.inputs or connectors)
        }
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
class KeyWindow:
    """Read together the consecutive increments whose framing keys lie in one window.

    A window is complete once an increment of another window is behind it. Of several
    inputs, windows are aligned as `Align` does it: once every input has an increment, those
    that begin with the smallest window read it, together, and an input that has none of this
    window is left alone. Their windows may then not go backwards; memo: the last one read.

    Args:
        width: Numbers: keys of equal `key // width` are one window (>= 1).
        prefix: Texts: keys of equal first characters are one window; 0: equal keys. Of
            keys such as `2026-11-21 10:00`, 10 characters are the day.
        inputs: The windowed inputs; none: all of them. Others are never read.
    """

    timeless: ClassVar[bool] = True  # it waits until its windows are complete
    split_free: ClassVar[bool] = False  # windows are of increments, and the last one stays

    width: int = 1
    prefix: int = 0
    inputs: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "inputs", _names(self.inputs))
        _at_least(1, width=self.width)
        _at_least(0, prefix=self.prefix)

    @property
    def named(self) -> tuple[str, ...]:
        """Name the windowed inputs."""
        return self.inputs

    def __call__(self, connectors: Connectors, memo: Any) -> Decision:
        """Run once the smallest window is complete; raises `AlignmentError` as `Align` does."""
        windowed = {n: c for n, c in connectors.items() if n in (self.inputs or connectors)}
        labels = {n: tuple(map(self._label, c.unread)) for n, c in windowed.items()}
        heads = {n: found[0] for n, found in labels.items() if found}
        if not heads:
            return Decision(memo=memo, waits_for=f"waits for a later window on {_quoted(labels)}")
        if len(windowed) == 1:  # nobody to meet: in any order
            return self._read(windowed, memo)
        for name, found in labels.items():
            _check_ascending(name, found, memo)
        smallest = _smallest(heads)
        first = [name for name, label in heads.items() if label == smallest]
        if missing := _empty(windowed):
            key = windowed[first[0]].framing_keys[0]
            words = f"waits for {_quoted(missing)} to reach {key}; {_are_there(heads)}"
            return Decision(memo=memo, waits_for=words)
        decision = self._read({name: windowed[name] for name in first}, memo)
        return replace(decision, memo=smallest) if decision.runnable else decision

    def _read(self, inputs: Connectors, memo: Any) -> Decision:
        """Read the oldest window of these inputs, once all of them are complete."""
        windows = {name: self._oldest(c.unread) for name, c in inputs.items()}
        if open_ := [name for name, window in windows.items() if not window]:
            return Decision(memo=memo, waits_for=f"waits for a later window on {_quoted(open_)}")
        return _consume(windows, memo)

    def _oldest(self, waiting: Sequence[Increment]) -> tuple[Increment, ...]:
        """Return the increments of the oldest window; none while it may still grow."""
        window = tuple(takewhile(lambda i: self._label(i) == self._label(waiting[0]), waiting))
        return window if len(window) < len(waiting) else ()

    def _label(self, increment: Increment) -> FramingKey:
        key = increment.framing_key
        if isinstance(key, int):
            return key // self.width
        return key[: self.prefix] if self.prefix else key


@dataclass(frozen=True)
class Phase:
    """One phase: its inputs are read exclusively.

    Args:
        reads: Inputs; the oldest increments of each that has some are read and removed.
        until: Stay, even while nothing is there, until this input has an increment. It is
            then read alone, which ends the phase. Without it the phase ends when its
            inputs are empty.
        drop: Inputs whose increments are removed unread when `until` ends the phase.
        batch: Most increments of each input in one run; 0: all that wait, so that what
            several runs sent for this phase is seen together.
    """

    reads: tuple[str, ...]
    until: str = ""
    drop: tuple[str, ...] = ()
    batch: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "reads", _names(self.reads))
        object.__setattr__(self, "drop", _names(self.drop))
        _at_least(1, reads=len(self.reads))
        _at_least(0, batch=self.batch)


@dataclass(frozen=True)
class Phases:
    """Go through phases in a circle; inputs of another phase wait.

    The memo is the number of the phase. A phase is entered when one of its inputs has an
    increment; the first at or behind the present one that has. So a phase without work is
    skipped, and new input of the first phase waits until the circle is round.

    Args:
        phases: In order; an input's name, or several, stand for `Phase(reads=...)`.

    Source: CBP (SoCC'10), section 3.1.2, incremental PageRank.
    """

    timeless: ClassVar[bool] = False  # what is not there is skipped
    split_free: ClassVar[bool] = True  # every increment is read once, or dropped as its author says

    phases: tuple[Phase, ...]

    def __post_init__(self) -> None:
        made = tuple(map(_phase, self.phases))
        object.__setattr__(self, "phases", made)
        _at_least(1, phases=len(made))

    @property
    def named(self) -> tuple[str, ...]:
        """Name every input of every phase."""
        return tuple(
            name
            for phase in self.phases
            for name in (*phase.reads, *phase.drop, *([phase.until] if phase.until else ()))
        )

    def __call__(self, connectors: Connectors, memo: Any) -> Decision:
        """Find the phase that has something to read."""
        now = memo if isinstance(memo, int) and memo < len(self.phases) else 0
        present = self.phases[now]
        if present.until and memo is not None:
            return self._bounded(present, now, connectors)
        for step in range(len(self.phases)):
            number = (now + step) % len(self.phases)
            if found := self._reads(self.phases[number], connectors):
                return _consume(found, number)
        every = [name for phase in self.phases for name in phase.reads]
        return Decision(memo=memo, waits_for=_waits(dict.fromkeys(every), any_of=True))

    def _bounded(self, phase: Phase, now: int, connectors: Connectors) -> Decision:
        """Decide in a phase that only the increment of `until` ends."""
        if end := connectors[phase.until].unread[:1]:
            # Behind the last phase comes the first one, which may be this one again.
            decision = _consume({phase.until: end}, (now + 1) % len(self.phases))
            dropped = {name: _indexes(connectors[name].unread) for name in phase.drop}
            return Decision(decision.read, {**decision.remove, **dropped}, decision.memo)
        if found := self._reads(phase, connectors):
            return _consume(found, now)
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
    """Tell whether a Runnable is one of these, through and through: it answers at once."""
    return type(function) in RULES.values() and all(
        is_ready_rule(part) for part in vars(function).values() if callable(part)
    )


def rule_text(value: Any) -> str:
    """Return a ready rule as text, such as `count_window(size=3)`: the same in every release.

    What has its default is left out, so that an argument of a later release changes nothing.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, tuple):
        return f"[{', '.join(map(rule_text, value))}]"
    if type(value) not in _NAMES:
        return str(value)
    given = {f.name: getattr(value, f.name) for f in fields(value)}
    plain = {
        f.name: f.default if f.default_factory is MISSING else f.default_factory()
        for f in fields(value)
    }
    told = [f"{name}={rule_text(v)}" for name, v in given.items() if v != plain[name]]
    return f"{_NAMES[type(value)]}({', '.join(told)})" if told else _NAMES[type(value)]


def _consume(found: Mapping[str, Sequence[Increment]], memo: Any) -> Decision:
    """Read and remove the same increments."""
    chosen = {name: _indexes(increments) for name, increments in found.items()}
    return Decision(chosen, chosen, memo)


def _indexes(increments: Iterable[Increment]) -> tuple[int, ...]:
    return tuple(increment.index for increment in increments)


def _empty(connectors: Connectors) -> list[str]:
    return [name for name, connector in connectors.items() if not connector.unread]


def _waits(names: Iterable[str], *, any_of: bool = False) -> str:
    return "waits for an increment on " + (" or " if any_of else ", ").join(names)


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _are_there(names: Iterable[str]) -> str:
    found = list(names)
    return f"{_quoted(found)} {'is' if len(found) == 1 else 'are'} there"


def _check_ascending(input_: str, keys: Sequence[FramingKey], last: Any) -> None:
    """Refuse a key smaller than the one before it, or than the last one that was read."""
    for before, key in pairwise(keys if last is None else (last, *keys)):
        if type(before) is not type(key) or key < before:
            raise AlignmentError(input_, key=key, before=before)


def _smallest(heads: Mapping[str, FramingKey]) -> FramingKey:
    """Return the smallest key; keys of different kinds have no order."""
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
        message = f"{name} is {given!r}; it takes a number from {least} on"
        raise ValueError(message)
