"""Checkpoint: the progress of a build, with which the next leader continues from its tables.

    <tables>/.scratch-<rebuild>t<try>/1/            the tables
    <tables>/.scratch-<rebuild>t<try>/build.json    the checkpoint

As with the tables that are served, a record is put first, and then its content is shown
(`cbp.engine.read.replay`). So the tables never contain more than the checkpoint says. What they
lack is published again, and what was prepared after the checkpoint is prepared again.

Guaranteed: a checkpoint that is damaged, or that another release wrote, is not used
(tests/controller/loop/rebuild/test_build_after_restart.py).
Not guaranteed: that a former leader which stalls right before it renames the folder does no harm. A
build whose folder is renamed by another process fails, and shows nothing.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import structlog

from cbp.engine.read.replay import ReplayState
from cbp.engine.storage.checked_json import digested, read_record
from cbp.engine.storage.failpoints import Faults
from cbp.engine.storage.files import Files, local_path
from cbp.errors import FileDamagedError, InvariantError, NotFoundError
from cbp.model.flow.increment import Increment
from controller.loop.records.dataflow_folder import scratch_folder

FORMAT = 1

EFFECT = "build_order"

_NAME = "build.json"

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """The progress of a build, as plain data.

    Attributes:
        fed: Source -> the number of its next increment.
        closed: Number of the next close that it has not read.
        closes: Numbers of closes that it has read, but not applied.
        seeds: The increments that it read instead of removed ones.
        valid_to: Source -> the first increment that it reads unchanged; of earlier ones it
            reads only the records that still count.
    """

    fed: Mapping[str, int]
    closed: int
    closes: tuple[int, ...]
    seeds: tuple[Increment, ...]
    valid_to: Mapping[str, int]
    replay: ReplayState

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values, with the release that writes them."""
        return {
            "format": FORMAT,
            "release": _release(),
            "fed": dict(self.fed),
            "closed": self.closed,
            "closes": list(self.closes),
            "seeds": [one.to_json() for one in self.seeds],
            "valid_to": dict(self.valid_to),
            "replay": self.replay.to_json(),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Checkpoint:
        """Read what `to_json` wrote; raises `InvariantError`."""
        if (written := (value.get("format"), value.get("release"))) != (FORMAT, _release()):
            message = f"release {written[1]!r} wrote the checkpoint, in format {written[0]}"
            raise InvariantError(message)
        return cls(
            fed=value["fed"],
            closed=value["closed"],
            closes=tuple(value["closes"]),
            seeds=tuple(map(Increment.from_json, value["seeds"])),
            valid_to=value["valid_to"],
            replay=ReplayState.from_json(value["replay"]),
        )


def write_checkpoint(files: Files, scratch: str, checkpoint: Checkpoint) -> None:
    """Replace the checkpoint of a build; durable once this returns."""
    text = json.dumps(checkpoint.to_json(), allow_nan=False, separators=(",", ":"))
    # The digest covers no folder's name, since the folder is renamed.
    files.write_durable(_path_of(scratch), digested(text.encode(), _NAME), what=EFFECT)


def read_checkpoint(files: Files, scratch: str) -> tuple[Checkpoint | None, str]:
    """Return the checkpoint of a build, or why there is none, in words."""
    try:
        return read_record(files, _path_of(scratch), Checkpoint.from_json), ""
    except NotFoundError:
        return None, "nothing had been built yet"
    except FileDamagedError as error:
        _log.warning("build_checkpoint.damaged", error=error.as_dict())
        return None, "the tables built so far are damaged"
    except InvariantError as error:
        _log.warning("build_checkpoint.unreadable", error=error.as_dict())
        return None, "another release built the tables"


def folder_of(root: str, rebuild: str, number: int) -> str:
    """Return the folder of an attempt of a build."""
    return scratch_folder(root, f"{rebuild}t{number}")


def take_over(files: Files, root: str, rebuild: str, *, faults: Faults) -> tuple[str, int]:
    """Rename the folder of a build's last attempt, so that no former leader finds it.

    Returns:
        The old path (`""` if there is no folder, or if it cannot be renamed), and the number of
        the attempt that continues (`folder_of`).
    """
    name = re.compile(re.escape(folder_of("", rebuild, 0).lstrip("/")[:-1]) + r"(\d+)", re.ASCII)
    tries = [int(match[1]) for match in map(name.fullmatch, files.list_names(root)) if match]
    if not tries:
        return "", 1
    number = max(tries)
    old, new = (local_path(folder_of(root, rebuild, n)) for n in (number, number + 1))
    faults(f"{EFFECT}.before")
    try:
        os.rename(old, new)
    except OSError as error:
        _log.warning("build_checkpoint.not_removed", rebuild=rebuild, error=str(error))
        return "", number + 1
    files.sync_dir(root)
    faults(f"{EFFECT}.after")
    return old, number + 1


def _path_of(scratch: str) -> str:
    return f"{scratch}/{_NAME}"


@cache
def _release() -> str:
    try:
        return importlib.metadata.version("cbp")
    except importlib.metadata.PackageNotFoundError:
        return ""
