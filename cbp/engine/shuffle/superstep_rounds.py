"""Rounds between the tasks of a loop: who gets the messages of a superstep, and what all know then.

    emitted -> by receiving task -> round of an exchange -> Round: received, waiting, aggregates

A task owns neighboring buckets, and emits in the order of its groups. So what is received, task by
task, is in the order in which one task would have emitted it; each task sorts, combines and numbers
its part of it as one task does with all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from cbp.engine.columnar.arrow_types import Int64s, conform
from cbp.engine.columnar.file_slices import file_columns
from cbp.engine.shuffle.exchange import (
    Exchange,
    Message,
    PeerGoneError,
    Tables,
    owners,
    shared_out,
)
from cbp.engine.shuffle.layout import ShuffleLayout
from cbp.engine.shuffle.replicated_read import message_hashes
from cbp.errors import CbpError
from cbp.model.dataflow.stage import TranslatorSpec

_MESSAGES, _REMOTE, _OUTPUTS = "messages/", "remote/", "outputs/"
"""What begins the names of tables in a round."""


@dataclass(frozen=True)
class Round:
    """What a task knows after the round of a superstep.

    Attributes:
        came: What it was sent, by task.
        error: Why it could not route its messages; counts only if the loop goes on.
    """

    came: Sequence[Message]
    error: CbpError | None = None

    @property
    def waiting(self) -> int:
        """How many messages all tasks have emitted."""
        return sum(one.facts["waiting"] for one in self.came)

    @property
    def saves(self) -> bool:
        """Whether all tasks put a snapshot if the loop goes on: task 0 says so, and all can."""
        return bool(self.came[0].facts["saves"]) and all(one.facts["fits"] for one in self.came)

    @property
    def aggregates(self) -> Mapping[str, Sequence[float]]:
        """What the groups of all tasks gave to each aggregate, or parts of as much."""
        given: list[Mapping[str, Sequence[float]]] = [one.facts["aggregates"] for one in self.came]
        if len(given) == 1:
            return given[0]
        return {name: [number for one in given for number in one[name]] for name in given[0]}

    @property
    def messages(self) -> dict[str, list[pa.Table]]:
        """The messages for this task's groups, by loopback, in the order of the tasks."""
        return self._tables(_MESSAGES, self.came)

    @property
    def remote(self) -> dict[str, list[pa.Table]]:
        """The records of states that groups emitted for keys of this task, likewise."""
        return self._tables(_REMOTE, self.came)

    @property
    def outputs(self) -> dict[str, list[pa.Table]]:
        """For task 0: the records of other outputs, which it writes for all tasks, likewise."""
        return self._tables(_OUTPUTS, self.came[1:])

    def require_routed(self) -> None:
        """Raise if a task could not route its messages, so that no superstep can follow.

        Raises:
            CbpError: It is this one.
            PeerGoneError: It is another one, which has the error.
        """
        if self.error is not None:
            raise self.error
        for part, one in enumerate(self.came):
            if one.facts["unroutable"]:
                raise PeerGoneError(part, False)

    @staticmethod
    def _tables(kind: str, came: Sequence[Message]) -> dict[str, list[pa.Table]]:
        tables: dict[str, list[pa.Table]] = {}
        for message in came:
            for name, table in message.tables.items():
                if name.startswith(kind) and table.num_rows:
                    tables.setdefault(name.removeprefix(kind), []).append(table)
        return tables


@dataclass(frozen=True)
class SuperstepRounds:
    """The rounds of one task of a loop.

    Attributes:
        tasks, buckets: Their numbers; a task owns neighboring buckets.
        hash_mask: As in the task's plan.
    """

    exchange: Exchange
    spec: TranslatorSpec
    layout: ShuffleLayout
    stage: str
    tasks: int
    buckets: int
    hash_mask: int

    def ask(self, name: str, answer: object) -> list[object]:
        """Return what all tasks answer to a question, by task; `answer` is this one's."""
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
        fits: bool,
        last: bool,
    ) -> Round:
        """Do the round after a superstep.

        Args:
            messages: What this task emitted, by loopback.
            remote: State records for other keys, by state, with their hashes.
            outputs: Records that task 0 writes, by output.
            saves: Whether it is time for a snapshot, by the clock of this task.
            fits: Whether this task has room for one.
            last: Whether no superstep can follow, so that no message has to reach its task.

        Raises:
            PeerGoneError: Another task has failed.
        """
        to = [dict[str, pa.Table]() for _ in range(self.tasks)]
        error: CbpError | None = None
        try:
            for name, table in {} if last else messages.items():
                self._send(to, f"{_MESSAGES}{name}", table, partial(self._receivers, name, table))
        except CbpError as exc:  # the author's code; an aggregate may still end the loop
            error = exc
        for name, table in remote.items():
            self._send(to, f"{_REMOTE}{name}", table, partial(_hashes, table))
        to[0].update({f"{_OUTPUTS}{name}": table for name, table in outputs.items()})
        facts = {
            "waiting": sum(table.num_rows for table in messages.values()),
            "aggregates": aggregates,
            "saves": saves,
            "fits": fits,
            "unroutable": error is not None,
        }
        return Round(self.exchange.swap(facts, to), error)

    def _send(
        self,
        to: Sequence[dict[str, pa.Table]],
        name: str,
        table: pa.Table,
        hashes: Callable[[], Int64s],
    ) -> None:
        """Add the rows of a table to what each task gets; `hashes` returns those of their keys."""
        if self.tasks == 1:
            to[0][name] = table
            return
        whose = owners(hashes(), tasks=self.tasks, buckets=self.buckets)
        for tables, rows in zip(to, shared_out(table, whose, self.tasks), strict=True):
            tables[name] = rows

    def _receivers(self, name: str, messages: pa.Table) -> Int64s:
        """Return the hash of the group that gets each message of a loopback."""
        flow = [one.name for one in self.spec.inputs].index(name)
        return message_hashes(
            conform(messages, file_columns(self.spec.inputs[flow])),
            self.spec,
            self.layout,
            flow,
            stage=self.stage,
            hash_mask=self.hash_mask,
        )


def _hashes(records: pa.Table) -> Int64s:
    hashes: Int64s = records.column("_hash").to_numpy()
    return hashes
