"""Rounds between the tasks of a loop: they send each other messages, and share facts about them.

    emitted -> pieces, by receiving task -> rounds of an exchange -> Arrived, in a room
                                                    '-> Round: waiting, aggregates

A task owns neighboring buckets, and emits in the order of its groups. So messages that arrive, task
by task, are in the order in which one task would have emitted them. Each task sorts, combines and
numbers its part as one task does with all messages.

Mostly a superstep has one round. If a loopback has others inside it, its messages wait in the task
that emitted them until all tasks know from a round that the inner loopbacks have no messages left.
The next round sends them, with the number of the superstep that emitted each. So the receiver can
order them by superstep first.

A table larger than a piece (`Room.piece_bytes`) takes several rounds, the same number in each task:
no task sends a piece before all tasks have received the previous one. So only few pieces are in
memory besides what the rooms of the tasks hold, whatever a superstep emits.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import pyarrow as pa

from cbp.engine.columnar.arrow_types import Int64s, conform
from cbp.engine.columnar.file_slices import file_columns
from cbp.engine.shuffle.exchange import Exchange, PeerGoneError, Tables, owners, shared_out
from cbp.engine.shuffle.layout import FlowRoute
from cbp.engine.shuffle.replicated_read import message_hashes
from cbp.engine.storage.file_sizes import halves
from cbp.engine.storage.held_records import HeldRecords, Room
from cbp.errors import CbpError

_MESSAGES, _LEFT, _REMOTE, _OUTPUTS = "messages/", "left/", "remote/", "outputs/"
"""Prefixes of the names of tables in a round. After messages have waited, the name of their table
ends with the number of the superstep that emitted them: `messages/news/17`.
"""

Waited = tuple[str, int, pa.Table]
"""A loopback, a superstep, and the messages that it emitted to the loopback."""


@dataclass(frozen=True)
class Round:
    """What all tasks know after a superstep: the `facts` that each of them sent.

    `unroutable` has each task that could not route a message, with the loopback of the message.
    `errors` has the errors of this task, by loopback. Both count only if a superstep reads the
    loopback.
    """

    facts: Sequence[Mapping[str, Any]]
    unroutable: Collection[tuple[int, str]] = ()
    errors: Mapping[str, CbpError] = field(default_factory=dict)

    @property
    def waiting(self) -> Mapping[str, int]:
        """How many messages of all tasks wait to be read, by loopback that has some."""
        together = Counter[str]()
        for one in self.facts:
            together.update(one["waiting"])
        return +together

    @property
    def saves(self) -> bool:
        """Whether all tasks save a snapshot if the loop continues: each can, and it is time."""
        return all(one["saves"] for one in self.facts)

    @property
    def aggregates(self) -> Mapping[str, Sequence[float]]:
        """Parts of the numbers that groups gave to each aggregate, in the order of the tasks."""
        given: list[Mapping[str, Sequence[float]]] = [one["aggregates"] for one in self.facts]
        return {name: [number for one in given for number in one[name]] for name in given[0]}

    def require_routed(self, read: Collection[str]) -> None:
        """Raise if a task could not route messages of these loopbacks: no superstep can follow.

        That task raises its own error, and all others raise `PeerGoneError`.
        """
        for name, error in self.errors.items():
            if name in read:
                raise error
        for part, name in sorted(self.unroutable):
            if name in read:
                raise PeerGoneError(part, False)


@dataclass
class Arrived:
    """Tables that other tasks sent and this one has not read yet, in the order of the tasks."""

    room: Room
    _held: dict[str, dict[int, HeldRecords]] = field(init=False, default_factory=dict)
    _cuts: dict[tuple[str, int], list[tuple[int, int]]] = field(init=False, default_factory=dict)

    def add(self, part: int, tables: Tables) -> None:
        """Hold tables that a task sent, behind its earlier ones. Raises as `Room.take`."""
        for name, table in tables.items():
            if table.num_rows:
                # One holder for all supersteps, since only large holders can go to a file.
                key, number = _cut(name)
                by_task = self._held.setdefault(key, {})
                if part not in by_task:
                    by_task[part] = HeldRecords(self.room)
                by_task[part].add(table)
                if number is not None:
                    self._cuts.setdefault((key, part), []).append((number, table.num_rows))

    def move_messages(self) -> dict[str, list[HeldRecords]]:
        """Return holders of the messages for this task's groups, by loopback."""
        return self._moved(_MESSAGES)

    def move_left(self) -> dict[str, list[HeldRecords]]:
        """Return holders of the messages that this task writes for all, by loopback."""
        return self._moved(_LEFT)

    def _moved(self, kind: str) -> dict[str, list[HeldRecords]]:
        names = [name for name in self._held if name.startswith(kind)]
        return {name.removeprefix(kind): self._in_order(name) for name in names}

    def _in_order(self, name: str) -> list[HeldRecords]:
        """Return holders of messages by sending task; those that waited come by superstep first."""
        parts = sorted(self._held[name].items())
        held = {part: one.move() for part, one in parts if one.tables}
        pieces: list[tuple[int, int, pa.Table]] = []
        for part, one in held.items():
            cuts = self._cuts.pop((name, part), [])
            table, start = pa.concat_tables(one.tables), 0
            for number, rows in cuts:
                pieces.append((number, part, table.slice(start, rows)))
                start += rows
        if pieces:
            pieces.sort(key=lambda piece: piece[:2])
            first, *others = held.values()
            first.tables = [table for _, _, table in pieces]
            for one in others:
                one.tables = []
        return [*held.values()]

    def take_remote(self, state: str) -> list[pa.Table]:
        """Return the records of a state that groups emitted for keys of this task."""
        return [table for one in self._of(f"{_REMOTE}{state}") for table in one.take()]

    def take_outputs(self) -> Iterator[tuple[str, pa.Table]]:
        """Yield the records of outputs that this task writes for others, each with its output."""
        for name in [name for name in self._held if name.startswith(_OUTPUTS)]:
            for one in self._of(name):
                for table in one.take():
                    yield name.removeprefix(_OUTPUTS), table

    def _of(self, name: str) -> list[HeldRecords]:
        return [one for _, one in sorted(self._held.get(name, {}).items()) if one.tables]


@dataclass(frozen=True)
class SuperstepRounds:
    """The rounds of one task of a loop; `arrived` has the tables that other tasks send to it."""

    exchange: Exchange
    routes: Sequence[FlowRoute]
    tasks: int
    arrived: Arrived

    def ask(self, name: str, answer: object) -> list[object]:
        """Return the answers of all tasks to a question, by task; `answer` is this one's."""
        nothing: list[Tables] = [{}] * self.tasks
        return [one.facts[name] for one in self.exchange.swap({name: answer}, nothing)]

    def swap(
        self,
        *,
        messages: Tables,
        remote: Tables,
        outputs: Tables,
        aggregates: Mapping[str, Sequence[float]],
        saves: bool,
        last: bool,
        waiting: Mapping[str, int] = MappingProxyType({}),
    ) -> Round:
        """Do the rounds after a superstep; afterwards `arrived` has what the others sent.

        Args:
            remote: State records for other keys, with their hashes.
            outputs: Records that task 0 writes.
            saves: Whether it is time for a snapshot of this task, and there is room for it.
            last: Whether no superstep can follow, so that messages need not reach their tasks.
            waiting: How many messages wait in this task until other loopbacks are at rest.

        Raises:
            PeerGoneError: If another task has failed.
            RunTooLargeError: If there is no room for what was sent.
        """
        sent = {
            **{f"{_MESSAGES}{name}": table for name, table in messages.items() if not last},
            **{f"{_REMOTE}{name}": table for name, table in remote.items()},
            **{f"{_OUTPUTS}{name}": table for name, table in outputs.items()},
        }
        rows = {name: table.num_rows for name, table in messages.items()}
        facts = {"waiting": {**waiting, **rows}, "aggregates": aggregates, "saves": saves}
        return self._rounds(sent, facts)

    def own(self, part: int, messages: Tables) -> tuple[dict[str, pa.Table], dict[str, pa.Table]]:
        """Return the messages for groups of this task (`part`), and others; each needs a key."""
        mine, others = dict[str, pa.Table](), dict[str, pa.Table]()
        for name, table in messages.items():
            is_mine = self._owners(f"{_MESSAGES}{name}", table) == part
            if is_mine.any():
                mine[name] = table if is_mine.all() else table.filter(pa.array(is_mine))
            if not is_mine.all():
                others[name] = table.filter(pa.array(~is_mine)) if is_mine.any() else table
        return mine, others

    def deliver(self, messages: Iterable[Waited], *, last: bool) -> Round:
        """Do the rounds for messages that have waited in this task; raises as `swap`.

        If no superstep can follow (`last`), task 0 gets all of them, in the order of supersteps,
        since it writes them for all.
        """
        kind = _LEFT if last else _MESSAGES
        return self._rounds({f"{kind}{name}/{at}": table for name, at, table in messages}, {})

    def _rounds(self, sent: Tables, facts: Mapping[str, Any]) -> Round:
        """Send tables, in as many rounds as any task needs; the first one also sends the facts."""
        packs = self._packs(sent)
        own: dict[str, Any] = {**facts, "rounds": len(packs)}
        said: list[Mapping[str, Any]] = []
        errors: dict[str, CbpError] = {}
        unroutable, number, most = set[tuple[int, str]](), 0, 1
        while number < most:
            to, wrong = self._shared_out(packs[number] if number < len(packs) else ())
            errors = {**errors, **{n: e for n, e in wrong.items() if n not in errors}}
            came = self.exchange.swap({**own, "unroutable": [*wrong]}, to)
            if not number:
                said = [one.facts for one in came]
                most = max(one["rounds"] for one in said)
            for part, one in enumerate(came):
                unroutable |= {(part, name) for name in one.facts["unroutable"]}
                self.arrived.add(part, one.tables)
            own, number = {}, number + 1
        return Round(said, unroutable, errors)

    def _packs(self, tables: Tables) -> list[list[tuple[str, pa.Table]]]:
        """Return, for each round, pieces of tables with their names; at least one round."""
        packs, size, most = [list[tuple[str, pa.Table]]()], 0, self.arrived.room.piece_bytes
        for name, table in tables.items():
            for piece in halves(table, rows_max=sys.maxsize, bytes_max=most):
                if size and size + piece.nbytes > most:
                    packs.append([])
                    size = 0
                packs[-1].append((name, piece))
                size += piece.nbytes
        return packs

    def _shared_out(
        self, pieces: Iterable[tuple[str, pa.Table]]
    ) -> tuple[list[dict[str, pa.Table]], dict[str, CbpError]]:
        """Return each task's share of some pieces, and the errors of routing, by loopback."""
        to = [dict[str, pa.Table]() for _ in range(self.tasks)]
        errors: dict[str, CbpError] = {}
        for name, piece in pieces:
            if name.startswith((_OUTPUTS, _LEFT)):
                _add(to[0], name, piece)
                continue
            try:
                whose = self._owners(name, piece)
            except CbpError as exc:  # the author's code; an aggregate may still end the loop
                errors.setdefault(_cut(name)[0].removeprefix(_MESSAGES), exc)
                continue
            for tables, rows in zip(to, shared_out(piece, whose, self.tasks), strict=True):
                _add(tables, name, rows)
        return to, errors

    def _owners(self, name: str, piece: pa.Table) -> Int64s:
        """Return the task that owns the group of each message, or the key of each state record."""
        if name.startswith(_REMOTE):
            hashes: Int64s = piece.column("_hash").to_numpy()
        else:
            loopback = _cut(name)[0].removeprefix(_MESSAGES)
            (route,) = (one for one in self.routes if one.input.name == loopback)
            hashes = message_hashes(conform(piece, file_columns(route.input)), route)
        return owners(hashes, tasks=self.tasks, buckets=self.routes[0].buckets)


def _cut(name: str) -> tuple[str, int | None]:
    """Return a table's name without its superstep, and the superstep; `None` if it has none."""
    kind, flow, *number = name.split("/")
    return f"{kind}/{flow}", int(number[0]) if number else None


def _add(tables: dict[str, pa.Table], name: str, rows: pa.Table) -> None:
    """Add rows to a task's share: several pieces of one table can be in one round."""
    tables[name] = pa.concat_tables([tables[name], rows]) if name in tables else rows
