"""The intention log of one dataflow: one immutable record per (stage, epoch).

The record is the truth about a run; a SQL store is an index over it. Putting it
is the commit point. Two controllers cannot both write entry n: the second one
learns that it no longer leads. Records of one stage are numbered like its epochs.

    _intentions/<stage>/<epoch>.json          what one run did
    _intentions/_positions/<number>.json      where the dataflow stood, now and then

A position (`cbp.model.position`) stands for all records before it, so that these can be
removed: whoever has lost the store begins at the newest position, not at the first epoch.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from cbp.engine.faults import NO_FAULTS, Faults
from cbp.engine.files import Exists, Files
from cbp.errors import InvariantError, LogConflictError
from cbp.model.intention import Intention
from cbp.model.position import Position

__all__ = ["RECORDS_KEPT", "IntentionLog"]

RECORDS_KEPT = 100
"""Records of a stage that stay for people, though a position stands for them."""

_POSITIONS = "_positions"


class IntentionLog:
    """Reads and puts the intentions below `<folder>/_intentions`."""

    def __init__(self, folder: str, files: Files, faults: Faults = NO_FAULTS) -> None:
        self._folder, self._files, self._fault = f"{folder}/_intentions", files, faults

    def put(self, intention: Intention) -> None:
        """Make an intention durable; succeeds again for the same run.

        Raises:
            LogConflictError: If another attempt is already recorded for this epoch.
        """
        path = self._path(intention.stage, intention.epoch)
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

    def put_position(self, position: Position) -> Position:
        """Make a position durable, then remove those before it; idempotent.

        One of this number that is there already says the same of every epoch, and less of
        what came since.

        Returns:
            The one that is durable.
        """
        path = self._path(_POSITIONS, position.number)
        data = json.dumps(position.to_json(), separators=(",", ":")).encode()
        result = self._files.put_if_absent(path, data, what="snapshot")
        self._remove_before(_POSITIONS, position.number)
        if isinstance(result, Exists):
            return Position.from_json(json.loads(result.data))
        return position

    def position(self) -> Position | None:
        """Return the newest position, or `None` when there is none."""
        numbers = self._numbers(_POSITIONS)
        if not numbers:
            return None
        data = self._files.read(self._path(_POSITIONS, numbers[-1]))
        return Position.from_json(json.loads(data))

    def trails(self, epochs: Mapping[str, int], position: Position) -> bool:
        """Tell whether records are gone that somebody who stands at `epochs` has not seen.

        Args:
            epochs: Stage to the next epoch there; a stage that is not in it stands at 0.
            position: What stands for the records that are gone.
        """
        return any(
            epochs.get(name, 0) < min(stage.epoch, self.oldest(name) or 0)
            for name, stage in position.stages.items()
        )

    def forget_positions(self, before: int) -> None:
        """Remove the positions of versions of the dataflow before this one; idempotent.

        They speak of other stages. The new version's description holds where it began.
        """
        for number in self._numbers(_POSITIONS):
            path = self._path(_POSITIONS, number)
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

    def _remove_before(self, folder: str, number: int) -> int:
        old = [found for found in self._numbers(folder) if found < number]
        for found in old:
            self._files.remove(self._path(folder, found), what="dead_record")
        return len(old)

    def _numbers(self, folder: str) -> list[int]:
        names = self._files.list_names(f"{self._folder}/{folder}")
        return [int(name.removesuffix(".json")) for name in names if name.endswith(".json")]

    def unpublished(self, stage: str, epoch: int) -> tuple[Intention, ...]:
        """Return the records of a stage before `epoch` that may not be published, in order.

        The newest one tells from where on; there is always that one, unless `epoch` is 0.

        Raises:
            InvariantError: If one of them is missing, or cannot be read.
        """
        if epoch == 0:
            return ()
        newest = self._require(stage, epoch - 1)
        older = (self._require(stage, e) for e in range(newest.unpublished_from, epoch - 1))
        return (*older, newest)

    def next_epochs(self) -> dict[str, int]:
        """Return stage to the epoch behind its newest record."""
        stages = (name for name in self._files.list_names(self._folder) if name != _POSITIONS)
        return {stage: found[-1] + 1 for stage in stages if (found := self._numbers(stage))}

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
        return f"{self._folder}/{stage}/{epoch:020d}.json"
