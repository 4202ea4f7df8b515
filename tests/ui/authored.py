"""A translator whose author can repair it while the service runs, for pages that show failures."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from tests.authored import install, write
from tests.system.processes import REPOSITORY
from tests.ui.served import Served

__all__ = ["LOOKING_UP", "PICKY", "Author", "send"]

_CODE = '''"""Keeps words; trips over one until that is repaired, waits at another while told to."""

import time
from pathlib import Path

from cbp import Input, Output, State, Translate


class Picky(Translate):
    """Keep the newest number of a word."""

    words = Input("word STRING, n BIGINT", route_by="word")
    seen = State("word STRING, n BIGINT")
    newest = Output("word STRING, n BIGINT")

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def translate(self, key, group, out):
        for row in group.words:
            if row.word == "poison" and not Path(self.folder, "repaired").exists():
                raise ValueError(f"cannot weigh {row.word!r}")
            while row.word == "slow" and Path(self.folder, "hold").exists():
                time.sleep(0.05)
            out.seen(word=row.word, n=row.n)
            out.newest(word=row.word, n=row.n)
'''

_LOOKUPS = '''"""Words with their newest number, and stages that look it up."""

from cbp import Input, Lookup, Output, Translate, View

WORDS = "word STRING, n BIGINT"


class Newest(Translate):
    """The newest number of each word."""

    words = Input(WORDS, route_by="word")
    newest = View(WORDS, key="word")

    def translate(self, key, group, out):
        out.newest(key.word, [row.n for row in group.words][-1])


class Named(Translate):
    """Each order with the newest number of its word."""

    orders = Input(WORDS, route_by="word")
    words = Lookup(WORDS, by="word")
    named = Output("word STRING, n BIGINT, newest BIGINT")

    def translate(self, key, group, out):
        word = group.words.one()
        for order in group.orders:
            out.named(key.word, order.n, word and word.n)


class Paired(Translate):
    """The sum of each word's orders with its newest number, whichever changes."""

    orders = Input(WORDS, route_by="word")
    words = Lookup(WORDS, by="word", wake=True)
    paired = View("word STRING, total BIGINT, newest BIGINT", key="word")

    def translate(self, key, group, out):
        word = group.words.one()
        total = sum(row.total for row in group.paired) + sum(row.n for row in group.orders)
        out.paired(key.word, total, word and word.n)
'''

_TABLE = "newest.newest"

LOOKING_UP: dict[str, Any] = {
    "name": "shop",
    "sources": {
        name: {"schema": "word STRING, n BIGINT", "format": "jsonl"} for name in ("words", "orders")
    },
    "stages": {
        "newest": {"translator": "newest", "inputs": {"words": "words"}},
        "named": {"translator": "named", "inputs": {"orders": "orders", "words": _TABLE}},
        "paired": {"translator": "paired", "inputs": {"orders": "orders", "words": _TABLE}},
    },
}
"""Two stages that look up the view of a third one; `paired` is also called for its changes."""

PICKY = "picky"
"""The name of the translator in documents."""


class Author:
    """Who wrote the translators of `LOOKING_UP`, and `picky`, of which failures can be repaired.

    Args:
        root: Folder for the package and the notes that the translator looks at.
    """

    def __init__(self, root: Path) -> None:
        self.folder = root
        modules = {"__init__": "", "picky": _CODE, "lookups": _LOOKUPS}
        write(root / "packages", {f"visits/{name}.py": text for name, text in modules.items()})
        points = {name.lower(): f"visits.lookups:{name}" for name in ("Newest", "Named", "Paired")}
        install(root / "packages", "visits", {PICKY: "visits.picky:Picky", **points})

    def settings(self) -> dict[str, Any]:
        """Return what `Served` needs: documents may name the translator, and two tries fail."""
        paths = [str(self.folder / "packages"), str(REPOSITORY)]
        return {
            "environment": {
                "PYTHONPATH": os.pathsep.join(paths),
                "CBP_RETRY_DELAYS_SECONDS": "0.2",
                "CBP_FAILURES_MAX": "2",
            },
            "allowed_packages": ("cbp", "visits"),
        }

    def document(self, name: str) -> dict[str, Any]:
        """Return a dataflow of two stages: `keep`, and `again`, which reads what it writes."""
        stage = {"translator": PICKY, "parameters": {"folder": str(self.folder)}, "buckets": 4}
        return {
            "name": name,
            "sources": {"visits": {"schema": "word STRING, n BIGINT", "format": "jsonl"}},
            "stages": {
                "keep": {
                    **stage,
                    "inputs": {"words": "visits"},
                    "limits": {"newest": {"records": 50}},
                },
                "again": {**stage, "inputs": {"words": "keep.newest"}},
            },
        }

    def repair(self) -> None:
        """Mend what a poisoned record needs; the next try succeeds."""
        (self.folder / "repaired").touch()

    def break_again(self) -> None:
        """Undo the repair: poisoned records fail."""
        (self.folder / "repaired").unlink()

    def hold(self) -> None:
        """Let runs with a slow record wait."""
        (self.folder / "hold").touch()

    def let_go(self) -> None:
        """Let them go on."""
        (self.folder / "hold").unlink(missing_ok=True)


def send(served: Served, dataflow: str, name: str, *records: tuple[str, int]) -> None:
    """Send records to the source of such a dataflow, as one file."""
    rows = [{"word": word, "n": n} for word, n in records]
    served.upload(dataflow, "visits", f"{name}.jsonl", rows)
