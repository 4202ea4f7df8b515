"""Waits until dropped files, or a close, are applied.

A file is applied once its increment is accepted and no stage has anything left to do; that includes
what arrives from elsewhere in the meantime. Claims are read first, so that the remaining work
includes what they queued.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from controller.cli.session import Session

PAGE = 100
LINE_SECONDS = 10.0
"""Seconds between two lines about the progress of a wait, if stderr is not a terminal."""


class Applied:
    """Waits for claims of a source that are newer than this object; create it before dropping."""

    def __init__(self, session: Session, dataflow: str, source: str) -> None:
        self._session, self._dataflow, self._source = session, dataflow, source
        newest = next(self._claims(limit=1))["items"]
        self._since = newest[0]["sequence"] if newest else -1

    def wait_for_claims(self, items: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Wait until each file is accepted or refused; return the claims in the files' order.

        Args:
            items: Files as in `cbp drop`: an upload has the `id` of its claim, and a file in
                the drop folder has its name in `path`.
        """
        with progress(self._session) as report:
            while (claims := _matched(items, settled := self._settled())) is None:
                report(f"waiting until files are accepted: {len(settled)} of {len(items)}")
                self._session.clock.wait(self._session.waits.poll_seconds)
        return claims

    def wait_for_stages(self) -> None:
        """Wait until all stages have applied the accepted files. Raises `StagesStoppedError`."""
        wait_until_applied(self._session, self._dataflow, "waiting until the files are applied")

    def summary(self) -> dict[str, Any]:
        """Return the summary of the dataflow."""
        return dict(self._session.rest.get("dataflows", self._dataflow)["summary"])

    def _settled(self) -> list[dict[str, Any]]:
        """Return the new claims that are decided, oldest first."""
        settled: list[dict[str, Any]] = []
        for page in self._claims(limit=PAGE):
            new = [claim for claim in page["items"] if claim["sequence"] > self._since]
            settled += [claim for claim in new if claim["status"] not in ("claiming", "claimed")]
            if len(new) < len(page["items"]):
                break
        return settled[::-1]

    def _claims(self, *, limit: int) -> Iterator[dict[str, Any]]:
        at = ("dataflows", self._dataflow, "claims")
        return self._session.pages(*at, source=self._source, limit=limit)


@contextmanager
def progress(session: Session) -> Iterator[Callable[[str], None]]:
    """Yield a function that shows the progress of a wait, in one line with the seconds so far.

    If stderr is not a terminal, a line is printed every `LINE_SECONDS`.
    """
    console, clock = Console(stderr=True, quiet=session.as_json), session.clock
    printed = began = clock.seconds()

    def line(words: str) -> str:
        return f"{words} ({clock.seconds() - began:.0f} s)"

    if console.is_terminal:
        with console.status("waiting") as shown:
            yield lambda words: shown.update(escape(line(words)))
        return

    def report(words: str) -> None:
        nonlocal printed
        if clock.seconds() - printed >= LINE_SECONDS:
            printed = clock.seconds()
            console.print(line(words), markup=False, highlight=False)

    yield report


def _matched(
    items: Sequence[Mapping[str, Any]], claims: Sequence[dict[str, Any]]
) -> list[dict[str, Any]] | None:
    """Return the claim of each file; `None` while a file has none.

    Files of one name are matched in the order in which they were dropped. A file that was already
    there has the same claim as the file before it.
    """
    from controller.ingest.folder.source_place import evidence  # loads pyarrow

    by_id = {claim["id"]: claim for claim in claims}
    by_path: dict[str, list[dict[str, Any]]] = {}
    for one in claims:
        by_path.setdefault(one["path"], []).append(one)
    matched, turns = [], dict.fromkeys(by_path, 0)
    claim: dict[str, Any] | None
    for item in items:
        path = evidence(item["path"])
        if "id" in item:
            claim = by_id.get(item["id"])
        else:
            mine = by_path.get(path, [])
            turn = turns.get(path, 0)
            again = item["status"] == "waits" and turn > 0
            claim = mine[turn - again] if turn - again < len(mine) else None
            turns[path] = turn + (not again)
        if claim is None:
            return None
        matched.append(claim)
    return matched


WaitForStages = Annotated[
    bool, typer.Option("--wait", help="Return once all stages have applied all queued input.")
]


def wait_until_applied(
    session: Session, dataflow: str, why: str = "waiting until all is applied"
) -> None:
    """Wait until no stage of a dataflow has work left, and show the progress.

    Raises `StagesStoppedError`.
    """
    with progress(session) as report:
        wait_for_stages(session, dataflow, lambda words: report(f"{why}: {words}"))


def wait_for_stages(session: Session, dataflow: str, report: Callable[[str], object]) -> None:
    """Wait until no stage of a dataflow has work left, and report what is left, in words.

    Raises `StagesStoppedError`.
    """
    session.client.wait(
        dataflow,
        seconds=None,
        poll_seconds=session.waits.poll_seconds,
        report=lambda left: report(", ".join(f"{name} {what}" for name, what in left.items())),
    )
