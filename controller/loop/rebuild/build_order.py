"""Build order: which version an operator wants built beside, and how that build ended.

    _description/rebuild/order.json     which version to build, whether to swap it in; how it ended

With its order, a build outlives the process. The swap is not part of the order, but a version like
any other: once the version is put, its order is done, wherever a crash happened.

The file is replaced by each order, and not put from the folder of the term. A former leader may
write an order late; since an order names its version and generation, it is refused if another
version or a roll-back came in between.

Guaranteed: `read_order` returns what was written last; an order that has ended is not carried out
again (tests/controller/loop/rebuild/test_build_after_restart.py).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from typing import Any, Literal

import structlog

from cbp.engine.storage.checked_json import digested, read_record
from cbp.engine.storage.files import Files
from cbp.errors import CbpError, FileDamagedError, NotFoundError, error_from_dict
from cbp.model.version.dataflow_shape import DataflowShape
from controller.loop.records.version_log import FOLDER, Descriptions
from controller.store.base import DataflowRecord

_EFFECT = "build_order"

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The outcome of a build.

    Attributes:
        seconds: Time since it was requested.
        tables: How the tables differed, as plain values.
        by: The person who asked for the swap, or cancelled the build; `""` if there is none.
        exact: As in `RebuildJob`.
    """

    status: Literal["swapped", "cancelled", "failed"]
    ended_at: datetime
    seconds: float
    by: str = ""
    tables: tuple[Mapping[str, Any], ...] = ()
    exact: bool = True
    error: CbpError | None = None

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        error = self.error
        return {
            **_values_of(self),
            "ended_at": self.ended_at.isoformat(),
            "tables": list(self.tables),
            "error": None if error is None else {"kind": type(error).__name__, **error.as_dict()},
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Outcome:
        """Read the output of `to_json`."""
        error = value["error"]
        changed: dict[str, Any] = {
            "ended_at": datetime.fromisoformat(value["ended_at"]),
            "tables": tuple(value["tables"]),
            "error": None if error is None else error_from_dict(error["kind"], error),
        }
        return cls(**{**value, **changed})


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildOrder:
    """The order to build a version beside, which lets a build continue after a restart.

    Attributes:
        version: The number that the version will have once it is swapped in.
        seeds: Source -> the operator's own files, which are read instead of removed input.
        swaps: Whether it is swapped in as soon as it is ready, as an operator has requested.
    """

    id: str
    version: int
    generation: int
    document: Mapping[str, Any]
    shape: DataflowShape
    began_at: datetime
    seeds: Mapping[str, str] = field(default_factory=dict)
    swaps: bool = False
    by: str = ""
    swap_by: str = ""
    outcome: Outcome | None = None

    def is_for(self, record: DataflowRecord) -> bool:
        """Return whether neither a new version nor a roll-back has followed this order."""
        return (record.version + 1, record.generation) == (self.version, self.generation)

    def is_done(self, record: DataflowRecord, descriptions: Descriptions) -> bool:
        """Return whether this order became a version of its dataflow, at any time."""
        if record.version < self.version:
            return False
        made = descriptions.version(record, self.version)
        begin = made.begin
        swapped = begin is not None and begin.swapped is not None and not begin.back
        return swapped and made.document == self.document

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            **_values_of(self),
            "shape": self.shape.to_json(),
            "began_at": self.began_at.isoformat(),
            "seeds": dict(self.seeds),
            "outcome": None if self.outcome is None else self.outcome.to_json(),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> BuildOrder:
        """Read the output of `to_json`."""
        changed: dict[str, Any] = {
            "shape": DataflowShape.from_json(value["shape"]),
            "began_at": datetime.fromisoformat(value["began_at"]),
            "outcome": Outcome.from_json(ended) if (ended := value.get("outcome")) else None,
        }
        return cls(**{**value, **changed})


def read_order(files: Files, folder: str) -> BuildOrder | None:
    """Return the order of the dataflow in a folder; `None` if there is none, or it is damaged."""
    try:
        return read_record(files, _path_of(folder), BuildOrder.from_json)
    except NotFoundError:
        return None
    except FileDamagedError as error:
        _log.warning("build_order.damaged", error=error.as_dict())
        return None


def open_order(files: Files, folder: str) -> BuildOrder | None:
    """Like `read_order`, but return `None` for an order that has ended."""
    order = read_order(files, folder)
    return None if order is None or order.outcome is not None else order


def write_order(files: Files, folder: str, order: BuildOrder) -> None:
    """Replace the order of a dataflow; durable once this returns."""
    path = _path_of(folder)
    # `default`: the details of an error may be of any kind.
    text = json.dumps(order.to_json(), allow_nan=False, sort_keys=True, default=str)
    files.write_durable(path, digested(text.encode(), path), what=_EFFECT)


def end_order(files: Files, folder: str, order: BuildOrder, outcome: Outcome) -> None:
    """Record the outcome of an order, durably, unless another order has replaced it."""
    known = read_order(files, folder)
    if known is not None and known.id == order.id:
        write_order(files, folder, replace(order, outcome=outcome))


def _path_of(folder: str) -> str:
    return f"{folder}/{FOLDER}/rebuild/order.json"


def _values_of(one: Outcome | BuildOrder) -> dict[str, Any]:
    return {field_.name: getattr(one, field_.name) for field_ in fields(one)}
