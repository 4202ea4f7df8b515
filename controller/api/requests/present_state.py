"""What only the service's own process has in memory: waits, troubles, phases of runs.

Figures of dataflows and runs read it from a `PresentState`. In the service's own process that is
`OwnState`. In a process that only reads, it is `ToldState`, which asks the service during the
request, so an answer is never older than its request.
"""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

from cbp.errors import error_from_dict
from cbp.model.schedule.waiting import Wait
from controller.ingest.drop_folder import DropFolder
from controller.loop.controller import Controller

Part = Literal["dataflows", "runs"]


class OwnState:
    """The present state, read from the parts of this process."""

    def __init__(self, controller: Controller, drop_folder: DropFolder) -> None:
        self._controller, self._drop_folder = controller, drop_folder

    def waits(self, dataflow: str) -> Mapping[str, Wait]:
        """Return stage -> why it did not start at the last tick, for leading stages."""
        return self._controller.waits(dataflow)

    def troubles(self, dataflow: str) -> Sequence[str]:
        """Return the failures outside the stages of a dataflow, in words."""
        words = [trouble.words for trouble in self._controller.troubles(dataflow)]
        return words + self._drop_folder.troubled(dataflow)

    def phases(self, run: str) -> Mapping[str, float]:
        """Return when the phases of a run under way began, as figures."""
        return self._controller.phases(run)

    def describe(self, part: bytes, dataflows: Callable[[], Sequence[str]]) -> bytes:
        """Return a part of the state for another process; `dataflows`: returns all their names."""
        if part == b"runs":
            return json.dumps(self._controller.every_phase()).encode()
        waits: dict[str, dict[str, Any]] = {}
        for (dataflow, stage), wait in self._controller.every_wait().items():
            waits.setdefault(dataflow, {})[stage] = _told(wait)
        troubles = {name: list(self.troubles(name)) for name in dataflows()}
        troubled = {name: words for name, words in troubles.items() if words}
        return json.dumps([waits, troubled]).encode()


class Answers:
    """Fetches parts of the state, one at a time; threads that wait for a part share its answer."""

    def __init__(self, ask: Callable[[Part], bytes]) -> None:
        self._ask, self._turn = ask, threading.Lock()
        self._moments = itertools.count()
        self._known: dict[Part, tuple[int, Any]] = {}

    def get(self, part: Part) -> Any:
        """Return a part as of now or later."""
        came = next(self._moments)
        with self._turn:
            asked, answer = self._known.get(part, (-1, None))
            if asked < came:
                asked = next(self._moments)
                answer = json.loads(self._ask(part))
                self._known[part] = asked, answer
            return answer


class ToldState:
    """The present state, fetched from the service: each part once per request, when needed."""

    def __init__(self, answers: Answers) -> None:
        self._answers = answers
        self._parts: dict[Part, Any] = {}

    def waits(self, dataflow: str) -> Mapping[str, Wait]:
        """See `OwnState.waits`."""
        waits = self._part("dataflows")[0].get(dataflow, {})
        return {stage: _heard(wait) for stage, wait in waits.items()}

    def troubles(self, dataflow: str) -> Sequence[str]:
        """See `OwnState.troubles`."""
        words: Sequence[str] = self._part("dataflows")[1].get(dataflow, ())
        return words

    def phases(self, run: str) -> Mapping[str, float]:
        """See `OwnState.phases`."""
        phases: Mapping[str, float] = self._part("runs").get(run, {})
        return phases

    def _part(self, part: Part) -> Any:
        if part not in self._parts:
            self._parts[part] = self._answers.get(part)
        return self._parts[part]


PresentState = OwnState | ToldState


def _told(wait: Wait) -> dict[str, Any]:
    error = wait.error
    return {
        "kind": wait.kind,
        "words": wait.words,
        "since": wait.since.isoformat(),
        "behind": wait.behind,
        "error": None if error is None else {"type": type(error).__name__, **error.as_dict()},
    }


def _heard(answer: Mapping[str, Any]) -> Wait:
    error = answer["error"]
    return Wait(
        answer["kind"],
        answer["words"],
        datetime.fromisoformat(answer["since"]),
        answer["behind"],
        None if error is None else error_from_dict(error["type"], error),
    )
