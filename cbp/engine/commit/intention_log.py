"""The intention log of one dataflow: one immutable record per (stage, epoch).

The record is the truth about a run; the SQL store is an index over the records. Putting the
record is the commit point. Two controllers cannot both write entry n: the second one learns
that it no longer leads.

    _intentions/<stage>/<epoch>.json          what one run did
    _intentions/_positions/<number>.json      where the dataflow stood; written now and then
    _intentions/_generations/<n>.json         roll-backs; below `<n>/` the records since

Records that a roll-back undid stay where they are, and are no longer read: each epoch is read
from one generation only, its home (`cbp.model.flow.generation`).

A position (`cbp.model.flow.position`) replaces all records before it, so that these can be
removed. If the store is lost, recovery begins at the newest position, not at the first epoch.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cached_property

from cbp.engine.commit.publication_check import applied_ms, require_shown
from cbp.engine.storage.checked_json import digested, parsed, read_record, record_numbers
from cbp.engine.storage.failpoints import NO_FAULTS, Faults
from cbp.engine.storage.files import Exists, Files
from cbp.errors import FileDamagedError, FileLostError, LogConflictError
from cbp.model.flow.generation import Generation, home_of, kept_positions
from cbp.model.flow.position import Position
from cbp.model.run.intention import Intention

RECORDS_KEPT = 100
"""Records of a stage that are kept for people to read, although a position replaces them."""

POSITIONS_KEPT = 50
"""Maximum number of positions that are kept by default; a dataflow can be rolled back to these."""

_POSITIONS = "_positions"
_GENERATIONS = "_generations"


class IntentionLog:
    """Reads and puts the intentions and positions below `<folder>/_intentions`.

    Make one for each use: it reads the generations once, so it does not notice later roll-backs.
    """

    def __init__(
        self,
        folder: str,
        files: Files,
        faults: Faults = NO_FAULTS,
        *,
        positions_kept: int = POSITIONS_KEPT,
    ) -> None:
        self._folder, self._files, self._fault = f"{folder}/_intentions", files, faults
        self._positions_kept = positions_kept

    def put(self, intention: Intention) -> None:
        """Make an intention durable; idempotent for the same run.

        `LogConflictError` if another attempt is already recorded for this epoch, or the dataflow
        was rolled back since the run was planned.
        """
        path = self._path(intention.stage, intention.epoch)
        if intention.generation != self.generation:
            raise LogConflictError(self._generation_path(self.generation))
        self._files.make_dirs(path.rpartition("/")[0])
        data = _encoded(intention, path)
        self._fault("intention.before")
        result = self._files.put_if_absent(path, data)
        self._fault("intention.after")
        if isinstance(result, Exists) and (
            parsed(result.data, path, Intention.from_json).run != intention.run
        ):
            raise LogConflictError(path)

    def read(self, stage: str, epoch: int) -> Intention | None:
        """Return an epoch's record, if any; raises `FileDamagedError`, as all reads do."""
        path = self._path(stage, epoch)
        if not self._files.exists(path):
            return None
        return read_record(self._files, path, Intention.from_json)

    def since(self, stage: str, epoch: int) -> Iterator[Intention]:
        """Yield the records of a stage from `epoch` on, in order."""
        while (intention := self.read(stage, epoch)) is not None:
            yield intention
            epoch += 1

    # generations

    @cached_property
    def generations(self) -> tuple[Generation, ...]:
        """All roll-backs of the dataflow, ascending; `FileLostError` if one is missing."""
        numbers = record_numbers(self._files.list_names(f"{self._folder}/{_GENERATIONS}"))
        for expected, number in enumerate(numbers, 1):
            if number != expected:
                why = "the record of a later roll-back exists"
                raise FileLostError(self._generation_path(expected), why)
        paths = (self._generation_path(number) for number in numbers)
        return tuple(read_record(self._files, path, Generation.from_json) for path in paths)

    def require_generation(self, number: int) -> None:
        """Raise `FileLostError` if the record of a begun generation is missing."""
        if self.generation < number:
            path = self._generation_path(self.generation + 1)
            raise FileLostError(path, f"the database is at generation {number}")

    @property
    def generation(self) -> int:
        """The number of the newest generation; 0 before the first roll-back."""
        return self.generations[-1].number if self.generations else 0

    def generation_before(self, version: int) -> int:
        """Return the newest generation begun under an older version of the dataflow, or 0."""
        older = (one.number for one in self.generations if one.position.version < version)
        return max(older, default=0)

    def put_generation(self, generation: Generation, *, staged: str = "") -> None:
        """Begin the next generation, the commit point of a roll-back; can be repeated.

        `LogConflictError` if another controller began a different generation, or leads now.
        """
        path = self._generation_path(generation.number)
        data = _encoded(generation, path)
        result = self._files.put_if_absent(path, data, what="generation", staged=staged)
        if isinstance(result, Exists) and (
            parsed(result.data, path, Generation.from_json) != generation
        ):
            raise LogConflictError(path)
        self.__dict__.pop("generations", None)

    # positions

    def put_position(self, position: Position, *, keep_seconds: float = 0.0) -> Position:
        """Make a position of the newest generation durable, then remove old ones; idempotent.

        An existing position of this number stays: it agrees about every epoch, and only lacks later
        arrivals. Positions younger than `keep_seconds` stay, up to `positions_kept`. The newest
        older one stays too, so that the dataflow can be rolled back to epochs after it.
        """
        path = self._position_path(self.generation, position.number)
        data = _encoded(position, path)
        result = self._files.put_if_absent(path, data, what="snapshot")
        remaining = 0
        for number in reversed(range(self.generation + 1)):
            most = self._positions_kept - remaining
            remaining += self._remove_positions(number, keep_seconds, most)
        if isinstance(result, Exists):
            return parsed(result.data, path, Position.from_json)
        return position

    def _remove_positions(self, generation: int, keep_seconds: float, most: int) -> int:
        """Remove a generation's old positions; return how many stay.

        The newest generation keeps at least its newest position.
        """
        folder = self._positions(generation)
        positions = [file for file in self._files.list_files(folder) if not file.temporary]
        young = sum(file.age_seconds < keep_seconds for file in positions)
        if generation == self.generation:
            keep = max(1, min(young + 1, most)) if keep_seconds else 1
        else:
            keep = min(young + 1, most) if young else 0
        old = positions[: max(0, len(positions) - keep)]
        for file in old:
            self._files.remove(f"{folder}/{file.path}", what="dead_record")
        if old:
            # Without the sync, a loss of power could restore a position whose files are removed.
            self._files.sync_dir(folder)
        return min(keep, len(positions))

    def position(self) -> Position | None:
        """Return the newest undamaged position, if any; `FileDamagedError` if all are damaged."""
        damage: FileDamagedError | None = None
        for number in reversed(self._position_numbers(self.generation)):
            try:
                return self._read_position(self.generation, number)
            except FileDamagedError as error:
                damage = damage or error  # the records after the previous position are kept too
        if damage is not None:
            raise damage
        return self.generations[-1].position if self.generations else None

    def positions(self) -> list[Position]:
        """Return the positions of all generations at which a roll-back can begin, ascending."""
        return list(self.newest_positions())[::-1]

    def newest_positions(self) -> Iterator[Position]:
        """Yield the entries of `positions`, descending; each is read on demand."""
        generations = self.generations
        for number in reversed(range(self.generation + 1)):
            for position in self._positions_of(number, newest_first=True):
                yield from kept_positions(generations, number, [position])
            if number:
                yield from kept_positions(generations, number, [generations[number - 1].position])

    def oldest_position(self) -> Position | None:
        """Return the oldest position that no roll-back has undone; the records after it stay."""
        generations = self.generations
        for number in range(self.generation + 1):
            for position in self._positions_of(number):
                if kept_positions(generations, number, [position]):
                    return position
        return None

    def _positions_of(self, generation: int, *, newest_first: bool = False) -> Iterator[Position]:
        numbers = self._position_numbers(generation)[:: -1 if newest_first else 1]
        return (self._read_position(generation, number) for number in numbers)

    def _positions(self, generation: int) -> str:
        return f"{self._base(generation)}/{_POSITIONS}"

    def _position_path(self, generation: int, number: int) -> str:
        return f"{self._positions(generation)}/{number:020d}.json"

    def _position_numbers(self, generation: int) -> list[int]:
        return record_numbers(self._files.list_names(self._positions(generation)))

    def _read_position(self, generation: int, number: int) -> Position:
        path = self._position_path(generation, number)
        return read_record(self._files, path, Position.from_json)

    # clean-up

    def trails(self, epochs: Mapping[str, int], position: Position, *, punctuations: int) -> bool:
        """Return whether the store lacks records or punctuations that the log has already removed.

        Args:
            epochs: Maps each stage to the store's next epoch; a missing stage counts as 0.
            position: The position that replaces the removed records.
            punctuations: Number of the store's next punctuation. Punctuations before a position
                are removed even if its records stay for roll-backs.
        """
        return punctuations < position.punctuations or any(
            epochs.get(name, 0) < min(stage.epoch, self.oldest(name) or 0)
            for name, stage in position.stages.items()
        )

    def forget_positions(self, before: int) -> None:
        """Remove the positions of earlier versions, which describe other stages; idempotent."""
        for generation in range(self.generation + 1):
            for number in self._position_numbers(generation):
                if self._read_position(generation, number).version < before:
                    self._files.remove(self._position_path(generation, number), what="dead_record")

    def trim(self, epochs: Mapping[str, int]) -> int:
        """Remove each stage's records before an epoch, also undone ones; return how many.

        The oldest are removed first, so an interrupted removal leaves no gap between two.
        A durable position replaces them. The epoch must not exceed `unpublished_from` of the newest
        record of the stage, from where a restart publishes.
        """
        return sum(self._remove_before(stage, epoch) for stage, epoch in epochs.items())

    def oldest(self, stage: str) -> int | None:
        """Return the oldest epoch of a stage that has a record; `None` if there is no record."""
        return next(iter(self._numbers(stage)), None)

    def _remove_before(self, stage: str, epoch: int) -> int:
        removed = 0
        for number in range(self.generation + 1):
            for recorded in self._epochs(number, stage):
                if recorded < epoch:
                    path = f"{self._base(number)}/{stage}/{recorded:020d}.json"
                    self._files.remove(path, what="dead_record")
                    removed += 1
        return removed

    def _epochs(self, generation: int, stage: str) -> list[int]:
        return record_numbers(self._files.list_names(f"{self._base(generation)}/{stage}"))

    def _numbers(self, stage: str) -> list[int]:
        """Return the epochs of a stage that have a record in their home generation, ascending."""
        return [
            recorded
            for number in range(self.generation + 1)
            for recorded in self._epochs(number, stage)
            if home_of(self.generations, stage, recorded) == number
        ]

    def unpublished(self, stage: str, epoch: int) -> tuple[Intention, ...]:
        """Return the records of a stage before `epoch` that may be unpublished, in order.

        The newest record says where they begin (`unpublished_from`). This record is always among
        them, unless `epoch` is the first of the generation. `FileLostError` if one is missing.
        """
        start = self.generations[-1].start(stage) if self.generations else 0
        if epoch <= start:
            return ()  # the roll-back has published all that it kept
        newest = self._require(stage, epoch - 1)
        first = max(newest.unpublished_from, start)
        return (*(self._require(stage, e) for e in range(first, epoch - 1)), newest)

    def applied_ms(self, stage: str, epoch: int) -> int | None:
        """Return, from the tables, when an epoch was published completely; `None` if unknown."""
        dataflow = self._folder.rpartition("/")[0]
        generation = home_of(self.generations, stage, epoch)
        return applied_ms(dataflow, self._files, stage, epoch, generation)

    def require_shown(self, stage: str, epoch: int) -> None:
        """Raise `FileLostError` if tables lack a published epoch of the newest generation."""
        if self.generations and epoch < self.generations[-1].start(stage):
            return
        try:
            record = self.read(stage, epoch)
        except FileDamagedError:
            return  # a published record is no longer needed
        if record is not None:
            require_shown(self._folder.rpartition("/")[0], self._files, record)

    def next_epochs(self) -> dict[str, int]:
        """Return each stage's next epoch: the one after its newest record."""
        last = self.generations[-1] if self.generations else None
        next_epochs = {} if last is None else {s: p.epoch for s, p in last.position.stages.items()}
        names = self._files.list_names(self._base(self.generation))
        for stage in (name for name in names if not name.startswith("_")):
            if numbers := self._epochs(self.generation, stage):
                next_epochs[stage] = numbers[-1] + 1
        return {stage: epoch for stage, epoch in next_epochs.items() if epoch}

    def _require(self, stage: str, epoch: int) -> Intention:
        intention = self.read(stage, epoch)
        if intention is None:
            why = f"the log of stage {stage!r} has no record of epoch {epoch}"
            raise FileLostError(self._path(stage, epoch), why)
        return intention

    def _path(self, stage: str, epoch: int) -> str:
        home = home_of(self.generations, stage, epoch)
        return f"{self._base(home)}/{stage}/{epoch:020d}.json"

    def _base(self, generation: int) -> str:
        below = f"/{_GENERATIONS}/{generation:020d}" if generation else ""
        return f"{self._folder}{below}"

    def _generation_path(self, number: int) -> str:
        return f"{self._base(number)}.json"


def _encoded(record: Intention | Generation | Position, path: str) -> bytes:
    return digested(json.dumps(record.to_json(), separators=(",", ":")).encode(), path)
