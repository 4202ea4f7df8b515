"""The intention log of one dataflow: one immutable record per (stage, epoch).

The record is the truth about a run; a SQL store is an index over it. Putting it
is the commit point. Two controllers cannot both write entry n: the second one
learns that it no longer leads. Records of one stage are numbered like its epochs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from cbp.engine.faults import NO_FAULTS, Faults
from cbp.engine.files import Exists, Files
from cbp.errors import LogConflictError
from cbp.model.intention import Intention

__all__ = ["IntentionLog"]


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

    def _path(self, stage: str, epoch: int) -> str:
        return f"{self._folder}/{stage}/{epoch:020d}.json"
