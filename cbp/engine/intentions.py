"""The intention log of one dataflow: one immutable record per (stage, epoch).

The record is the truth about a run; a SQL store is an index over it. Putting it
is the commit point. Two controllers cannot both write entry n: the second one
learns that it no longer leads. Records of one stage are numbered like its epochs.

    _intentions/<stage>/<epoch>.json          what one run did
    _intentions/_positions/<number>.json      where the dataflow stood, now and then
    _intentions/_generations/<n>.json         roll-backs; below `<n>/` the records since

What was undone by a roll-back stays where it is, and is no longer looked at: each epoch has
one home (`cbp.model.generation`).

A position (`cbp.model.position`) stands for all records before it, so that these can be
removed: whoever has lost the store begins at the newest position, not at the first epoch.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cached_property

from cbp.engine.faults import NO_FAULTS, Faults
from cbp.engine.files import Exists, Files
from cbp.errors import InvariantError, LogConflictError
from cbp.model.generation import Generation, home_of, kept_positions
from cbp.model.intention import Intention
from cbp.model.position import Position

__all__ = ["RECORDS_KEPT", "IntentionLog"]

RECORDS_KEPT = 100
"""Records of a stage that stay for people, though a position stands for them."""

POSITIONS_KEPT = 50
"""Positions that may stay, so that a dataflow can be rolled back to what is behind them."""

_POSITIONS = "_positions"
_GENERATIONS = "_generations"


class IntentionLog:
    """Reads and puts the intentions below `<folder>/_intentions`.

    Made anew for each look: it knows the generations that were there at its first use.
    """

    def __init__(self, folder: str, files: Files, faults: Faults = NO_FAULTS) -> None:
        self._folder, self._files, self._fault = f"{folder}/_intentions", files, faults

    def put(self, intention: Intention) -> None:
        """Make an intention durable; succeeds again for the same run.

        Raises:
            LogConflictError: If another attempt is already recorded for this epoch, or the
                dataflow was rolled back since the run was planned.
        """
        path = self._path(intention.stage, intention.epoch)
        if intention.generation != self.generation:
            raise LogConflictError(self._generation_path(self.generation))
        self._files.make_dirs(path.rpartition("/")[0])
        data = json.dumps(intention.to_json(), separators=(",", ":")).encode()
        self._fault("intention.before")
        result = self._files.put_if_absent(path, data)
        self._fault("intention.after")
        if isinstance(result, Exists) and json.loads(result.data)["run"] != intention.run:
            raise LogConflictError(path)

    def read(self, stage: str, epoch: int) -> Intention | None:
        """Return the record of an epoch, or `None` when there is none."""
        path = self._path(stage, epoch)
        if not self._files.exists(path):
            return None
        return Intention.from_json(json.loads(self._files.read(path)))

    def since(self, stage: str, epoch: int) -> Iterator[Intention]:
        """Yield the records of a stage from `epoch` on, in order."""
        while (intention := self.read(stage, epoch)) is not None:
            yield intention
            epoch += 1

    # generations

    @cached_property
    def generations(self) -> tuple[Generation, ...]:
        """All roll-backs of the dataflow, ascending."""
        folder = f"{self._folder}/{_GENERATIONS}"
        numbers = _numbers_of(self._files.list_names(folder))
        found = (json.loads(self._files.read(self._generation_path(n))) for n in numbers)
        return tuple(Generation.from_json(value) for value in found)

    @property
    def generation(self) -> int:
        """The number of the newest generation; 0: never rolled back."""
        return self.generations[-1].number if self.generations else 0

    def generation_before(self, version: int) -> int:
        """Return the number of the newest generation that older versions of it began."""
        older = (one.number for one in self.generations if one.position.version < version)
        return max(older, default=0)

    def put_generation(self, generation: Generation, *, staged: str = "") -> None:
        """Begin a generation: the commit point of a roll-back; succeeds again for the same.

        Args:
            generation: The next one.
            staged: As of `Files.put_if_absent`.

        Raises:
            LogConflictError: If another controller began it otherwise, or leads now.
        """
        path = self._generation_path(generation.number)
        data = json.dumps(generation.to_json(), separators=(",", ":")).encode()
        result = self._files.put_if_absent(path, data, what="generation", staged=staged)
        if isinstance(result, Exists) and result.data != data:
            raise LogConflictError(path)
        self.__dict__.pop("generations", None)

    # positions

    def put_position(self, position: Position, *, keep_seconds: float = 0.0) -> Position:
        """Make a position durable, then remove old ones before it; idempotent.

        One of this number that is there already says the same of every epoch, and less of
        what came since.

        Args:
            position: Of the newest generation.
            keep_seconds: Positions stay that are younger, up to `POSITIONS_KEPT`, and the
                newest one that is older: what is behind it can be rolled back to.

        Returns:
            The one that is durable.
        """
        folder = f"{self._base(self.generation)}/{_POSITIONS}"
        path = f"{folder}/{position.number:020d}.json"
        data = json.dumps(position.to_json(), separators=(",", ":")).encode()
        result = self._files.put_if_absent(path, data, what="snapshot")
        kept = 0
        for number in reversed(range(self.generation + 1)):
            kept += self._remove_positions(number, keep_seconds, POSITIONS_KEPT - kept)
        if isinstance(result, Exists):
            return Position.from_json(json.loads(result.data))
        return position

    def _remove_positions(self, generation: int, keep_seconds: float, most: int) -> int:
        """Remove a generation's old positions, but the newest one of all; return what stays."""
        folder = f"{self._base(generation)}/{_POSITIONS}"
        found = [file for file in self._files.list_files(folder) if not file.temporary]
        young = sum(file.age_seconds < keep_seconds for file in found)
        if generation == self.generation:
            keep = max(1, min(young + 1, most)) if keep_seconds else 1
        else:
            keep = min(young + 1, most) if young else 0
        for file in found[: max(0, len(found) - keep)]:
            self._files.remove(f"{folder}/{file.path}", what="dead_record")
        return min(keep, len(found))

    def position(self) -> Position | None:
        """Return the newest position, or `None` when there is none."""
        found = self._positions_of(self.generation, newest_only=True)
        if found:
            return found[-1]
        return self.generations[-1].position if self.generations else None

    def positions(self) -> list[Position]:
        """Return the positions that a roll-back may begin at, of all generations, ascending."""
        found: list[Position] = []
        for number in range(self.generation + 1):
            begun = [self.generations[number - 1].position] if number else []
            found += kept_positions(self.generations, number, [*begun, *self._positions_of(number)])
        return found

    def oldest_position(self) -> Position | None:
        """Return the oldest position that was put and is kept; records behind it stay."""
        for number in range(self.generation + 1):
            if kept := kept_positions(self.generations, number, self._positions_of(number)):
                return kept[0]
        return None

    def _positions_of(self, generation: int, *, newest_only: bool = False) -> list[Position]:
        folder = f"{self._base(generation)}/{_POSITIONS}"
        numbers = _numbers_of(self._files.list_names(folder))
        wanted = numbers[-1:] if newest_only else numbers
        data = (json.loads(self._files.read(f"{folder}/{n:020d}.json")) for n in wanted)
        return [Position.from_json(value) for value in data]

    # clean-up

    def trails(self, epochs: Mapping[str, int], position: Position, *, punctuations: int) -> bool:
        """Tell whether records or closes are gone that somebody who stands there has not seen.

        Args:
            epochs: Stage to the next epoch there; a stage that is not in it stands at 0.
            position: What stands for what is gone.
            punctuations: Number of the next punctuation there. Those before a position are
                removed, also where its records stay for roll-backs.
        """
        return punctuations < position.punctuations or any(
            epochs.get(name, 0) < min(stage.epoch, self.oldest(name) or 0)
            for name, stage in position.stages.items()
        )

    def forget_positions(self, before: int) -> None:
        """Remove the positions of versions of the dataflow before this one; idempotent.

        They speak of other stages. The new version's description holds where it began.
        """
        for generation in range(self.generation + 1):
            folder = f"{self._base(generation)}/{_POSITIONS}"
            for number in _numbers_of(self._files.list_names(folder)):
                path = f"{folder}/{number:020d}.json"
                if Position.from_json(json.loads(self._files.read(path))).version < before:
                    self._files.remove(path, what="dead_record")

    def trim(self, epochs: Mapping[str, int]) -> int:
        """Remove records that nobody needs, oldest first.

        Args:
            epochs: Stage to the first epoch whose record stays; a durable position
                stands for those before. Never beyond what a restart looks for to publish:
                `unpublished_from` of the stage's newest record.

        Returns:
            How many were removed.
        """
        return sum(self._remove_before(stage, epoch) for stage, epoch in epochs.items())

    def oldest(self, stage: str) -> int | None:
        """Return the oldest epoch of a stage that has a record; `None` if none has."""
        return next(iter(self._numbers(stage)), None)

    def _remove_before(self, stage: str, epoch: int) -> int:
        """Remove records, undone ones too; those of a later generation are never before."""
        removed = 0
        for number in range(self.generation + 1):
            folder = f"{self._base(number)}/{stage}"
            for found in _numbers_of(self._files.list_names(folder)):
                if found < epoch:
                    self._files.remove(f"{folder}/{found:020d}.json", what="dead_record")
                    removed += 1
        return removed

    def _numbers(self, stage: str) -> list[int]:
        """Return the epochs of a stage that have a record, where they are at home, ascending."""
        return [
            found
            for number in range(self.generation + 1)
            for found in _numbers_of(self._files.list_names(f"{self._base(number)}/{stage}"))
            if home_of(self.generations, stage, found) == number
        ]

    def unpublished(self, stage: str, epoch: int) -> tuple[Intention, ...]:
        """Return the records of a stage before `epoch` that may not be published, in order.

        The newest one tells from where on; there is always that one, unless `epoch` is the
        first of the generation.

        Raises:
            InvariantError: If one of them is missing, or cannot be read.
        """
        start = self.generations[-1].start(stage) if self.generations else 0
        if epoch <= start:
            return ()  # a roll-back publishes what it leaves
        newest = self._require(stage, epoch - 1)
        first = max(newest.unpublished_from, start)
        return (*(self._require(stage, e) for e in range(first, epoch - 1)), newest)

    def next_epochs(self) -> dict[str, int]:
        """Return stage to the epoch behind its newest record."""
        last = self.generations[-1] if self.generations else None
        found = {} if last is None else {s: p.epoch for s, p in last.position.stages.items()}
        names = self._files.list_names(self._base(self.generation))
        for stage in (name for name in names if not name.startswith("_")):
            if numbers := _numbers_of(
                self._files.list_names(f"{self._base(self.generation)}/{stage}")
            ):
                found[stage] = numbers[-1] + 1
        return {stage: epoch for stage, epoch in found.items() if epoch}

    def _require(self, stage: str, epoch: int) -> Intention:
        try:
            found = self.read(stage, epoch)
        except (ValueError, KeyError, TypeError) as error:
            message = f"the record of epoch {epoch} cannot be read: {error}"
            raise InvariantError(message, stage=stage, epoch=epoch) from error
        if found is None:
            message = f"the log of stage {stage!r} has no record of epoch {epoch}"
            raise InvariantError(message, stage=stage, epoch=epoch)
        return found

    def _path(self, stage: str, epoch: int) -> str:
        home = home_of(self.generations, stage, epoch)
        return f"{self._base(home)}/{stage}/{epoch:020d}.json"

    def _base(self, generation: int) -> str:
        if not generation:
            return self._folder
        return f"{self._folder}/{_GENERATIONS}/{generation:020d}"

    def _generation_path(self, number: int) -> str:
        return f"{self._base(number)}.json"


def _numbers_of(names: list[str]) -> list[int]:
    return [int(name.removesuffix(".json")) for name in names if name.endswith(".json")]
