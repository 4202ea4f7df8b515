"""A service whose input is corrected while it is killed, and what counts, computed by Polars.

Files are added, replaced and taken back; tables are built beside, swapped in, and swapped back; the
dataflow is rolled back; the database is lost. Each of these may be cut short by `kill -9`, and is
asked for again with its key. After each, every table is what Polars makes of the files that count.
"""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import polars as pl

from cbp.client import Client
from cbp.client.errors import ServiceProblemError, ServiceUnreachableError
from cbp.client.rest import Retries
from tests.system.corrected_views import (
    BEGIN,
    COLUMNS,
    NAME,
    PACKAGE,
    WORDS,
    Files,
    Rows,
    document,
    install_flows,
    right,
)
from tests.system.processes import REPOSITORY, TOKEN, Instance, until

__all__ = ["Corrected"]


@dataclass
class Mark:
    """A moment at which the dataflow was idle: its number, and the files that counted then."""

    position: int
    counts: Files


@dataclass
class Corrected:
    """One service, the files that count, and random steps; a seed chooses them.

    Attributes:
        kills: The share of requests that are cut short by a kill.
        done: How often each step was taken; kills are counted, too.
    """

    root: Path
    seed: int
    kills: float = 0.5
    done: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.dice = random.Random(self.seed)
        folder = self.root / "author"
        install_flows(folder)
        path = f"{REPOSITORY}:{folder}"
        # What a process that was killed leaves there, the next roll-back removes.
        temporary = self.root / "temporary"
        temporary.mkdir()
        environment = {
            "PYTHONPATH": path,
            "CBP_REBUILD_SHARE": "0.3",
            "TMPDIR": str(temporary),
        }
        self.instance = Instance(
            self.root,
            "one",
            engine="local",
            environment=environment,
            allowed_packages=("cbp", "stages", PACKAGE),
        )
        self.counts: Files = {}
        self.marks: list[Mark] = []
        self.former: list[Mark] = []
        self.floor = 0
        self.sent = 0
        self.trace: list[str] = []
        self._start()
        self.client.register(document())

    # the service

    def _start(self) -> None:
        self.instance.start()
        self.instance.wait()
        # Files arrive faster than they are read: then a correction is asked for again.
        self.client = Client(self.instance.settings.url, token=TOKEN, retries=Retries(attempts=60))

    def restart(self) -> None:
        """Kill it, and start it again."""
        self.client.close()
        self.instance.kill()
        self._count("kill")
        self._start()

    def lose(self) -> None:
        """Kill it, delete its database, and have that rebuilt from the folders."""
        self.client.close()
        self.instance.kill()
        for path in self.root.glob("cbp.db*"):
            path.unlink()
        self.instance.run("recover", "--rebuild")
        self._start()

    def _count(self, what: str) -> None:
        self.done[what] = self.done.get(what, 0) + 1

    def perhaps_killed(self, ask: Callable[[Client], Any]) -> None:
        """Ask for something that can be asked again, and kill the service meanwhile, or not."""
        if self.dice.random() < self.kills:
            seconds = self.dice.choice((0.02, 0.1, 0.3, 0.6, 1.2)) * self.dice.random()
            self.trace[-1] += f" killed after {seconds:.3f} s"
            thread = threading.Thread(target=self._ask_once, args=(ask,), daemon=True)
            thread.start()
            threading.Event().wait(seconds)
            self.restart()
            thread.join(60)
        ask(self.client)

    def _ask_once(self, ask: Callable[[Client], Any]) -> None:
        url = self.instance.settings.url
        with (
            suppress(ServiceProblemError, ServiceUnreachableError, httpx.HTTPError, AssertionError),
            Client(url, token=TOKEN, retries=Retries(attempts=1)) as client,
        ):
            ask(client)

    # what is asked for

    def put(self) -> None:
        """Add a file, or replace one, or take one back."""
        source = self.dice.choice(("items", "items", "feed"))
        name = f"f{self.dice.randrange(4)}"
        key, there = str(uuid4()), self.counts.get((source, name))
        path: tuple[str, ...] = ("dataflows", NAME, "sources", source)
        query = {"name": name, "reason": "wrong"}
        if there is not None and self.dice.random() < 0.3:
            self.trace.append(f"retract {source} {name}")
            del self.counts[source, name]
            self.perhaps_killed(
                lambda client: client.rest.post(
                    *path, "retractions", query=query, idempotency_key=key
                )
            )
            self._count("retract")
            return
        kept = [row for row in there or () if self.dice.random() < 0.7]
        rows = [*kept, *self._rows(source)]
        content = "".join(json.dumps(row) + "\n" for row in rows).encode()
        self.counts[source, name] = rows
        what = "files" if there is None else "replacements"
        query = {"name": name} if there is None else query
        self.trace.append(f"{what} {source} {name} {len(rows)}")
        self.perhaps_killed(
            lambda client: client.rest.post(
                *path,
                what,
                query=query,
                content=content,
                content_type="application/octet-stream",
                idempotency_key=key,
            )
        )
        self._count(what)

    def _rows(self, source: str) -> Rows:
        dice, rows = self.dice, []
        for _ in range(dice.randint(1, 8)):
            self.sent += 1
            if source == "items":
                rows.append({"word": dice.choice(WORDS), "n": dice.randrange(5)})
                continue
            at = BEGIN + timedelta(seconds=dice.randrange(400))
            rows.append(
                {
                    "op": dice.choice("cuud"),
                    "ts": self.sent,
                    "id": dice.randrange(12),
                    "who": dice.choice("xyz"),
                    "at": at.isoformat(),
                    "cents": dice.randrange(4),
                }
            )
        return rows

    def back(self) -> None:
        """Roll back to a moment: all comes again, or what came later is dropped."""
        if not self.marks:
            return
        later = self.dice.random() < 0.6
        able = [one for one in self.marks if later or one.position >= self.floor]
        if not able:
            return
        mark, key = self.dice.choice(able), str(uuid4())
        self.trace.append(f"back to {mark.position}, drop_later {later}")
        query = {"to": mark.position, "drop_later": str(later).lower(), "reason": "wrong"}
        path = ("dataflows", NAME, "rollback")

        def ask(client: Client) -> None:
            job = client.rest.post(*path, query=query, idempotency_key=key)
            while not (seen := client.rest.get(*path, "jobs", job["id"]))["ended"]:
                threading.Event().wait(0.05)
            assert seen["error"] is None, seen

        self.perhaps_killed(ask)
        self.marks = [one for one in self.marks if one.position <= mark.position]
        if later:
            self.counts = dict(mark.counts)
            self.floor = mark.position
        self._count("back" if not later else "back_and_drop")

    def build(self) -> None:
        """Begin to build all tables beside, unless that is under way."""
        if self.job() is not None:
            return
        self.trace.append("build")
        self.client.rest.post("dataflows", NAME, "rebuilds")
        self._count("build")
        if self.dice.random() < self.kills:
            threading.Event().wait(self.dice.random())
            self.trace[-1] += " killed"
            self.restart()

    def job(self, client: Client | None = None) -> Any:
        """Return the rebuild that is under way."""
        items = (client or self.client).rest.get("dataflows", NAME, "rebuilds")["items"]
        return next((one for one in items if not one["ended"]), None)

    def cancel(self) -> None:
        """End a rebuild that is under way."""
        if (job := self.job()) is None:
            return
        self.trace.append(f"cancel {job['status']}")

        def ask(client: Client) -> None:
            if self.job(client) is not None:
                client.rest.post("dataflows", NAME, "rebuilds", job["id"], "cancel")

        self.perhaps_killed(ask)
        self._count("cancel")

    def swap(self) -> None:
        """Swap in what is built beside, once it is ready."""
        job = self.job()
        if job is None:
            return

        def seen(client: Client | None = None) -> Any:
            items = (client or self.client).rest.get("dataflows", NAME, "rebuilds")["items"]
            return next(one for one in items if one["id"] == job["id"])

        until(lambda: seen()["status"] != "building", "it is built")
        if seen()["ended"]:
            self.trace.append(f"swap of what {seen()['status']}: {seen()['error']}")
            return
        differs = [t for t in seen()["tables"] if t["added"] or t["gone"] or t["changed"]]
        exact = seen()["exact"]
        self.trace.append(f"swap; differs {differs} exact {exact}")
        # Whether a timer has fired depends on when runs began.
        assert not exact or all("later." in one["table"] for one in differs), differs

        def ask(client: Client) -> None:
            # Killed before the request was recorded, it is only built again.
            until(lambda: seen(client)["status"] != "building", "it is built", 60)
            if seen(client)["status"] == "ready":
                client.rest.post("dataflows", NAME, "rebuilds", job["id"], "swap")
            until(lambda: seen(client)["ended"], "it is swapped in", 60)

        self.perhaps_killed(ask)
        assert seen()["status"] == "swapped", seen()
        self._new_version()
        self._count("swap")

    def _new_version(self) -> None:
        self.former, self.marks, self.floor = [*self.former, *self.marks], [], 0

    def back_before_it_began(self) -> None:
        """Roll back to before the newest swap: it is refused, and nothing happens."""
        if not self.former:
            return
        mark = self.dice.choice(self.former)
        self.trace.append(f"back before the swap, to {mark.position}")
        query = {"to": mark.position, "drop_later": "true", "reason": "wrong"}
        path = ("dataflows", NAME, "rollback")
        stages = self.client.rest.get("dataflows", NAME)["stages"]
        before = [one["epoch"] for one in stages]
        job = self.client.rest.post(*path, query=query, idempotency_key=str(uuid4()))
        while not (seen := self.client.rest.get(*path, "jobs", job["id"]))["ended"]:
            threading.Event().wait(0.05)
        assert seen["error"]["error_code"] == "rollback_impossible", seen
        stages = self.client.rest.get("dataflows", NAME)["stages"]
        assert [one["epoch"] for one in stages] == before
        self._count("refused")

    def unswap(self) -> None:
        """Show the tables from before the last swap again."""
        listed = self.client.rest.get("dataflows", NAME, "rebuilds")
        if listed["back_until"] is None or self.job() is not None:
            return
        self.trace.append("swap back")
        version = self.client.rest.get("dataflows", NAME)["version"]

        def ask(client: Client) -> None:
            if client.rest.get("dataflows", NAME)["version"] == version:
                client.rest.post("dataflows", NAME, "rebuilds", "back")

        self.perhaps_killed(ask)
        assert self.client.rest.get("dataflows", NAME)["version"] == version + 1
        self._new_version()
        self._count("swap_back")

    def lose_the_database(self) -> None:
        """Lose the database at any time."""
        self.trace.append("lose")
        self.lose()
        self._count("lose")

    def pause(self) -> None:
        """Let corrections wait; `settle` resumes."""
        self.trace.append("pause")
        self.client.rest.post("dataflows", NAME, "pause")

    # what must be there

    def settle(self) -> None:
        """Wait until every table is what counts, and note the moment."""
        self.client.rest.post("dataflows", NAME, "resume")
        expected = {table: _sorted(rows) for table, rows in right(self.counts).items()}
        found: dict[str, Any] = {}

        def is_right() -> bool:
            found.clear()
            found.update((table, self.table(table)) for table in expected)
            return found == expected

        try:
            until(is_right, "", 60)
        except AssertionError:
            for table, rows in expected.items():
                if found[table] != rows:
                    missing = [row for row in rows if row not in found[table]]
                    extra = [row for row in found[table] if row not in rows]
                    message = f"{table} lacks {missing}, has {extra}"
                    stages = self.client.rest.get("dataflows", NAME)["stages"]
                    waiting = [(s["name"], s["state"], s["waiting"]) for s in stages]
                    raise AssertionError(message, waiting) from None
            raise
        self.client.wait(NAME, seconds=60)
        moments = self.client.rest.get("dataflows", NAME, "rollback", "moments", limit=1)["items"]
        if moments:
            self.marks = [one for one in self.marks if one.position != moments[0]["position"]]
            self.marks.append(Mark(moments[0]["position"], dict(self.counts)))

    def table(self, name: str) -> list[Any]:
        """Return the records of a view as any reader of Delta finds them, in order."""
        path = f"{self.instance.settings.tables}/{NAME}/state/{name}"
        return _sorted(pl.read_delta(path).select(COLUMNS[name]).rows())

    def verify(self) -> None:
        """Compare with a recomputation of all that counts."""
        self.trace.append("verify")
        seen = self.client.verify(NAME)
        bad = [t for t in seen.tables if t.status not in ("equal", "undecided")]
        assert seen.status in ("equal", "undecided"), seen.answer
        assert not bad, bad
        self._count("verify")

    def play(self, steps: int) -> None:
        """Take random steps; after each group of them, all is right."""
        for _ in range(3):
            self.trace.append("first")
            self.put()
        self.settle()
        many = [
            (self.put, 8),
            (self.back, 3),
            (self.build, 2),
            (self.cancel, 1),
            (self.swap, 2),
            (self.unswap, 1),
            (self.back_before_it_began, 1),
            (self.lose_the_database, 1),
            (self.pause, 1),
            (self.verify, 1),
        ]
        calls, weights = zip(*many, strict=True)
        for call in self.dice.choices(calls, weights, k=steps):
            if call in (self.back, self.back_before_it_began, self.verify, self.unswap):
                self.settle()
            call()
            if call != self.pause and self.dice.random() < 0.8:
                self.settle()
        self.settle()
        self.verify()
        self.require_no_leftovers()

    def require_no_leftovers(self) -> None:
        """No more is left of the roll-backs of killed processes than the last one's folder."""
        left = list((self.root / "temporary").glob("cbp-rollback-*"))
        assert len(left) <= 1, left

    def close(self) -> None:
        """End the service."""
        self.client.close()
        self.instance.kill()


def _sorted(rows: Any) -> list[Any]:
    return sorted(rows, key=repr)
