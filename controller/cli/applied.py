"""Waiting until what was dropped, or closed, is applied.

A file is applied once its increment is accepted and no stage has anything left to do: claims
are read first, so that what they queued is in what is left. What arrives meanwhile from
elsewhere is waited for too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from rich.console import Console

from controller.cli.errors import FilesRefusedError, StagesStoppedError
from controller.cli.session import Session

__all__ = ["Applied", "wait_for_stages"]

POLL_SECONDS = 0.1
PAGE = 100
_STOPPED = ("stopped", "paused")


class Applied:
    """Knows which claims of a source are older than this, so make it before dropping."""

    def __init__(self, given: Session, dataflow: str, source: str) -> None:
        self._session, self._dataflow, self._source = given, dataflow, source
        newest = self._claims(limit=1)["items"]
        self._since = newest[0]["sequence"] if newest else -1

    def wait(self, names: Sequence[str], *, hidden: bool) -> list[dict[str, Any]]:
        """Return the claims of files once all is applied, in the order of their names.

        Args:
            names: Of the files in the drop folder.
            hidden: Show nothing meanwhile.

        Raises:
            FilesRefusedError: If any of them is in quarantine.
            StagesStoppedError: If what is left to do is left to stages that do not start.
        """
        console = Console(stderr=True, quiet=hidden)
        with console.status("waits until the files are accepted") as shown:
            while len(claims := self._settled(names)) < len(set(names)):
                time.sleep(POLL_SECONDS)
            refused = {
                name: str((claim["reason"] or {}).get("message", ""))
                for name, claim in claims.items()
                if claim["status"] == "quarantined"
            }
            if refused:
                raise FilesRefusedError(self._dataflow, refused)
            wait_for_stages(self._session, self._dataflow, shown.update)
        return [claims[name] for name in names]

    def _settled(self, names: Sequence[str]) -> dict[str, dict[str, Any]]:
        """Return the new claims of these files that are decided, by name."""
        found: dict[str, dict[str, Any]] = {}
        cursor = None
        while True:
            page = self._claims(limit=PAGE, cursor=cursor)
            for claim in page["items"]:
                if claim["sequence"] <= self._since:
                    return found
                if claim["path"] in names and claim["status"] not in ("claiming", "claimed"):
                    found[claim["path"]] = claim
            cursor = page["cursor"]
            if cursor is None:
                return found

    def _claims(self, *, limit: int, cursor: str | None = None) -> Any:
        with self._session.connect() as service:
            return service.get(
                "dataflows",
                self._dataflow,
                "claims",
                source=self._source,
                limit=limit,
                cursor=cursor,
            )


def wait_for_stages(
    given: Session, dataflow: str, told: Callable[[str], object] = lambda words: None
) -> None:
    """Return once no stage of a dataflow has anything left to do.

    Args:
        given: The session.
        dataflow: Its name.
        told: What is left, in words, now and then.

    Raises:
        StagesStoppedError: If it is left to stages that do not start.
    """
    while left := _left(given, dataflow):
        told(", ".join(f"{stage} {what}" for stage, what in left.items()))
        time.sleep(POLL_SECONDS)


def _left(given: Session, dataflow: str) -> dict[str, str]:
    with given.connect() as service:
        left: dict[str, str] = service.get("dataflows", dataflow, "left")["stages"]
        if left:
            stopped = {
                stage["name"]: stage["waiting"] or stage["state"]
                for stage in service.get("dataflows", dataflow)["stages"]
                if stage["name"] in left and stage["state"] in _STOPPED
            }
            if stopped.keys() >= left.keys():
                raise StagesStoppedError(dataflow, stopped)
    return left
