"""A package of an author, made from a seed: translators, a helper module, and edits of them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

__all__ = ["SCHEMA", "Package", "document"]

SCHEMA = "k BIGINT, v STRING"

_HELPERS = """
WEIGHT = {weight}


def shortened(text):
    return (text or "")[:{length}]
"""

_STAGES = """
from cbp import Input, Output, State, Translate, TranslateRecords
from {name} import helpers

SCHEMA = "k BIGINT, v STRING"


class Spread(TranslateRecords):
    items = Input(SCHEMA)
    o = Output(SCHEMA)

    def translate(self, record, out):
        for n in range(((record.k or 0) + {shift}) % 3):
            out.o(k=(record.k or 0) - n, v=helpers.shortened(f"{{n}}{{record.v}}"))


class Tally(Translate):
    items = Input(SCHEMA, route_by="k", order_by="v")
    seen = State("k BIGINT, n BIGINT")
    o = Output(SCHEMA)

    def translate(self, key, group, out):
        n = sum(row.n for row in group.seen)
        for row in group.items:
            n += helpers.WEIGHT
            out.o(k=n % 4, v=row.v)
        if n % 5:
            out.seen(k=key.k, n=n)


class RollCall(Translate):
    items = Input(SCHEMA, route_by="k", order_by="v")
    seen = State("k BIGINT, n BIGINT", grouping="outer")
    o = Output(SCHEMA)

    def translate(self, key, group, out):
        before = n = sum(row.n for row in group.seen)
        for row in group.items:
            n += helpers.WEIGHT
        n -= n == before
        out.o(k=key.k, v=helpers.shortened(str(n)))
        if n % 5:
            out.seen(k=key.k, n=n)


class Pair(Translate):
    left = Input(SCHEMA, route_by="k")
    right = Input(SCHEMA, route_by="k")
    o = Output(SCHEMA)

    def translate(self, key, group, out):
        left, right = list(group.left), list(group.right)
        out.o(k=key.k, v=helpers.shortened(f"{{len(left) * helpers.WEIGHT}}-{{len(right)}}"))
"""

_KINDS = {
    "spread": ("Spread", ("items",), ""),
    "tally": ("Tally", ("items",), "seen"),
    "roll_call": ("RollCall", ("items",), "seen"),
    "pair": ("Pair", ("left", "right"), ""),
}

_USED = {
    "spread": {"shift", "length"},
    "tally": {"weight"},
    "roll_call": {"weight", "length"},
    "pair": {"weight", "length"},
}
"""What a translator needs of the package; an edit of anything else is no other code."""


@dataclass
class Package:
    """The text of a package, which `edit` changes; the code that writes it loads it."""

    name: str
    values: dict[str, int] = field(
        default_factory=lambda: {"weight": 1, "length": 3, "shift": 0, "comments": 0}
    )

    @property
    def files(self) -> dict[str, str]:
        """The modules, by path."""
        note = "# Says why.\n" * self.values["comments"]
        return {
            f"{self.name}/__init__.py": "",
            f"{self.name}/helpers.py": note + _HELPERS.format(**self.values),
            f"{self.name}/stages.py": note + _STAGES.format(name=self.name, **self.values),
        }

    @property
    def points(self) -> dict[str, str]:
        """The translators, by the names that documents use."""
        return {
            f"{self.name}_{kind}": f"{self.name}.stages:{class_}"
            for kind, (class_, _, _) in _KINDS.items()
        }

    def edit(self, draw: random.Random) -> str:
        """Change one thing: a constant, a helper, a class, or a comment; return which."""
        what = draw.choice(sorted(self.values))
        self.values[what] += 1
        return what


def document(name: str, package: str, draw: random.Random) -> dict[str, Any]:
    """Return a random dataflow of the package's translators; every stage is read or a result."""
    sources = [f"s{n}" for n in range(draw.randint(1, 2))]
    flows, stages = list(sources), {}
    for n in range(draw.randint(2, 5)):
        kind = draw.choice(sorted(_KINDS))
        inputs = {one: draw.choice(flows) for one in _KINDS[kind][1]}
        if n < len(sources):
            inputs[next(iter(inputs))] = sources[n]  # nobody drops files for no one
        stages[f"t{n}"] = {
            "translator": f"{package}_{kind}",
            "inputs": inputs,
            "buckets": draw.choice([2, 4, 8]),
            "fuse": draw.random() < 0.7,
        }
        flows.append(f"t{n}.o")
    return {
        "name": name,
        "sources": {one: {"schema": SCHEMA} for one in sources},
        "stages": stages,
    }


def needs(stages: dict[str, Any], what: str) -> bool:
    """Tell whether an edit of something is another code of some stage."""
    kinds = (stage["translator"].partition("_")[2] for stage in stages.values())
    return any(what in _USED[kind] for kind in kinds)


def states(stages: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield stage and state of those that keep some."""
    for name, stage in stages.items():
        if kept := next(s for k, (_, _, s) in _KINDS.items() if stage["translator"].endswith(k)):
            yield name, kept
