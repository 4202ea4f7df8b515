"""Ready stages behind a source whose files are replaced: each is what counts gives, at any time."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from cbp.testing import run_dataflow
from controller.ingest.uploads import Author
from stages.translators.as_of_join import AsOfJoin
from stages.translators.dimension_join import DimensionJoin
from stages.translators.join import Join
from stages.translators.latest import Latest
from stages.translators.latest_change import LatestChange
from tests.controller.corrected_files import Shelf
from tests.controller.verified import verified
from tests.stages.ready_stages import FORMS, LEFT, RIGHT, TABLE, ddl, random_days, stages

pytestmark = pytest.mark.usefixtures("without_syncs")

FEEDS = {"left": (LEFT, "id"), "right": (RIGHT, "pair, since"), "table": (TABLE, "pair")}
MESSAGE = "op STRING, ts BIGINT"


def translators() -> dict[str, Any]:
    """Return what makes each stage, by name: the feeds first, then all that read their views."""
    made: dict[str, Any] = {
        f"now_{name}": partial(LatestChange, f"{MESSAGE}, {ddl(columns)}", key, "ts")
        for name, (columns, key) in FEEDS.items()
    }
    for name, (groupwise, parameters) in stages().items():
        if groupwise is not Latest:  # what came last depends on the order of arrival
            made[name] = partial(groupwise, **parameters)
            made[f"{name}_arrow"] = partial(FORMS[groupwise], **parameters)
    return {name: (lambda one=one: one()) for name, one in made.items()}


def wiring(name: str) -> dict[str, str]:
    """Return what a stage reads."""
    groupwise, _ = stages()[name.removesuffix("_arrow")]
    left = "now_left.latest"
    if groupwise is DimensionJoin:
        return {"rows": left, "dimension": "now_table.latest"}
    if groupwise in (Join, AsOfJoin):
        return {"left": left, "right": "now_right.latest"}
    return {"rows": left}


def document() -> dict[str, Any]:
    """Return the dataflow: a change feed each, and all ready stages that read signed changes."""
    feeds = {f"now_{name}": {"changes": name} for name in FEEDS}
    return {
        "name": "ready",
        "sources": {
            name: {"schema": f"{MESSAGE}, {ddl(columns)}"} for name, (columns, _) in FEEDS.items()
        },
        "stages": {
            name: {
                "translator": name,
                "inputs": feeds.get(name) or wiring(name),
                "buckets": 2,
                **({"any_order": True} if name in feeds else {}),
            }
            for name in translators()
        },
    }


class Counter:
    """Files of messages that are added, replaced and taken back, at random.

    Attributes:
        counts: Source and name of a file to its messages, of those that count.
    """

    def __init__(self, shelf: Shelf, dice: random.Random) -> None:
        self.shelf, self._dice, self._sent = shelf, dice, 0
        self.counts: dict[tuple[str, str], list[dict[str, Any]]] = {}

    def step(self) -> None:
        """Change one file."""
        dice = self._dice
        source = dice.choice(["left", "left", "right", "table"])
        key = source, f"f{dice.randrange(3)}"
        ask = partial(self.shelf.drop_folder.replacements.ask, self.shelf.place(source), key[1])
        author = Author("me", f"step {self._sent}")
        if key not in self.counts:
            self.counts[key] = self._messages(source)
            self.shelf.drop_folder.upload(
                self.shelf.place(source), key[1], _lines(self.counts[key])
            )
        elif dice.random() < 0.3:
            ask(None, author)
            del self.counts[key]
        else:
            kept = [one for one in self.counts[key] if dice.random() < 0.7]
            self.counts[key] = [*kept, *self._messages(source)]
            ask(_lines(self.counts[key]), author)

    def _messages(self, source: str) -> list[dict[str, Any]]:
        """Return messages as JSON has them; their numbers are each there once."""
        made = []
        for row in random_days(self._dice, days=1)[0][source]:
            self._sent += 1
            op = self._dice.choice(["c", "u", "u", "d"])
            made.append({"op": op, "ts": self._sent, **{n: _plain(v) for n, v in row.items()}})
        self._dice.shuffle(made)
        return made or [{"op": "d", "ts": self._sent, **dict.fromkeys(FEEDS[source][0])}]

    def require_right(self) -> None:
        """Every view is that of a dataflow which was given what counts, all at one time."""
        world, dataflow = self.shelf.world, self.shelf.named()[1]
        valid: dict[str, list[dict[str, Any]]] = {name: [] for name in FEEDS}
        for (source, _), messages in self.counts.items():
            valid[source] += [_parsed(one) for one in messages]
        right = run_dataflow(dataflow, {name: [rows] for name, rows in valid.items()})
        for name, node in dataflow.stages.items():
            for view in node.translator.views:
                rows = world.engine.records.read_state(f"{world.tables}/ready", node, view.name)
                found = sorted(_shown(row.values()) for row in rows)
                wanted = sorted(map(_shown, right.view(f"{name}.{view.name}")))
                assert found == wanted, name


def _shown(values: Iterable[Any]) -> str:
    """Return a record as a text; times without the name of their zone."""
    return repr([one.timestamp() if isinstance(one, datetime) else one for one in values])


def _plain(value: Any) -> Any:
    """Return a value as JSON has it; of what JSON has not, another one."""
    if isinstance(value, float):
        return 1.5 if value != value else value + 0.0
    return value.isoformat() if hasattr(value, "isoformat") else value


def _parsed(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message as the service reads it."""
    times = {name: message[name] for name in ("at", "since") if message.get(name)}
    return {**message, **{name: datetime.fromisoformat(text) for name, text in times.items()}}


def _lines(messages: list[dict[str, Any]]) -> io.BytesIO:
    return io.BytesIO("".join(json.dumps(one) + "\n" for one in messages).encode())


@pytest.mark.part(every=4)
@pytest.mark.parametrize("seed", range(4))
def test_all_ready_stages_follow_random_corrections(tmp_path: Path, seed: int) -> None:
    """Rows and columns, after every file that was added, replaced or taken back."""
    shelf = Shelf(tmp_path, document(), translators())
    counter = Counter(shelf, random.Random(seed))
    for _ in range(6):
        counter.step()
        shelf.take_in()
        counter.require_right()
    assert verified(shelf.world, "ready").status == "equal"
    shelf.close()
