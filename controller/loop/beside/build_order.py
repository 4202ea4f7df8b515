"""Build order: what an operator asked to be built beside, kept until it has ended.

    _description/rebuild/order.json     which version to build, and whether to swap it in

It makes a build outlive the process. The leader that starts next reads it and builds anew: what was
built so far is thrown away, since its queues were in memory. The swap is not part of the order, but
a version like any other: an order of a version that was put is done, wherever a crash happened.

One file is replaced, not put once out of the folder of the term: an order that a former leader
writes late names the version and the generation that it was for, and is refused if another one took
over.

Guaranteed: `read_order` returns what was written last, and nothing once it was removed
(tests/controller/loop/beside/test_build_after_restart.py).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import structlog

from cbp.engine.storage.checked_json import digested, read_record
from cbp.engine.storage.files import Files
from cbp.errors import FileDamagedError, NotFoundError
from cbp.model.version.shape import DataflowShape
from controller.loop.records.description_log import FOLDER, Description
from controller.store.base import DataflowRecord

_EFFECT = "build_order"

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildOrder:
    """What is built beside, and why it may go on after a restart.

    Attributes:
        id: Names the job.
        version: The number that the version will have once it is swapped in.
        generation: The dataflow's generation when the build began.
        document: The document of the version.
        shape: The compiled document, with the fingerprints of its code.
        began_at: When the build was asked for.
        seeds: Source to the operator's own files that are read in place of input that is gone.
        swaps: Whether it is swapped in as soon as it is ready, since an operator asked for that.
    """

    id: str
    version: int
    generation: int
    document: Mapping[str, Any]
    shape: DataflowShape
    began_at: datetime
    seeds: Mapping[str, str] = field(default_factory=dict)
    swaps: bool = False

    def is_for(self, record: DataflowRecord) -> bool:
        """Return whether neither a version nor a roll-back came after this order."""
        return (record.version + 1, record.generation) == (self.version, self.generation)

    def became(self, present: Description) -> bool:
        """Return whether a description is that of the swap."""
        begin = present.begin
        swapped = begin is not None and begin.swapped is not None and not begin.back
        return swapped and (present.version, present.document) == (self.version, self.document)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "id": self.id,
            "version": self.version,
            "generation": self.generation,
            "document": self.document,
            "shape": self.shape.to_json(),
            "began_at": self.began_at.isoformat(),
            "seeds": dict(self.seeds),
            "swaps": self.swaps,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> BuildOrder:
        """Read what `to_json` wrote."""
        return cls(
            id=value["id"],
            version=value["version"],
            generation=value["generation"],
            document=value["document"],
            shape=DataflowShape.from_json(value["shape"]),
            began_at=datetime.fromisoformat(value["began_at"]),
            seeds=value.get("seeds", {}),
            swaps=value["swaps"],
        )


def read_order(files: Files, folder: str) -> BuildOrder | None:
    """Return the order of the dataflow in a folder; `None` if there is none, or it is damaged."""
    try:
        return read_record(files, _path_of(folder), BuildOrder.from_json)
    except NotFoundError:
        return None
    except FileDamagedError as error:
        _log.warning("build_order.damaged", error=error.as_dict())
        return None


def write_order(files: Files, folder: str, order: BuildOrder) -> None:
    """Replace the order of a dataflow; durable once this returns."""
    path = _path_of(folder)
    text = json.dumps(order.to_json(), allow_nan=False, sort_keys=True)
    files.write_durable(path, digested(text.encode(), path), what=_EFFECT)


def remove_order(files: Files, folder: str) -> None:
    """Forget the order of a dataflow, if there is one; durable once this returns."""
    path = _path_of(folder)
    if files.exists(path):
        files.remove(path, what=_EFFECT)
        files.sync_dir(path.rpartition("/")[0])


def _path_of(folder: str) -> str:
    return f"{folder}/{FOLDER}/rebuild/order.json"
