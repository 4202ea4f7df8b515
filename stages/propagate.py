"""Values that spread along the edges of a graph while edges come and go.

    class Components(Propagate):
        def start(self, node):                   # what a node is worth by itself
            return node

        def along(self, value):                  # what an edge makes of the value where it begins
            return value

A node's value is the best of its own start and of what edges bring from other nodes. Each node
remembers the edge that brought its value, its *support*. When a better value comes, the node takes
it, and tells its neighbours. When the support goes, the value goes, and so do all values that it
supports, before any of them is derived again:

    valid -- support lost --> trimming -- all answered --> asking -- all answered --> valid

A node that trims says so along its edges. Those that it supports trim too, and answer when they
have done so; all others answer at once. So no node takes back a value that its own value led to.
Then the node asks the nodes from which edges lead to it, and takes the best answer. The result does
not depend on the order in which nodes are called, and is the same within one run and over many.

Source: the idea of trimming by support is KickStarter's (ASPLOS'17); the answers that end it are
those of a diffusing computation (Dijkstra and Scholten, 1980).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from cbp import Input, Loopback, Schema, State, Translate, View
from stages.source_node import SourceNode

Link = tuple[Any, ...]
"""The node at the other end, and the edge's own columns."""

_TELL, _LOST, _TRIMMED, _ASK, _ANSWER, _LINK = range(6)
"""Kinds of messages; the last three are `_LINK` plus a level."""

_VALID, _TRIMMING, _ASKING = range(3)
"""Phases of a node."""

_CUT, _MIRRORS, _OWNS = range(3)
"""Levels of a link: no edge; an edge at the other end only; an edge at this end."""


class Propagate(Translate):
    """Give each node the best value that its own start, or any path to it, leads to.

    A subclass defines the initial value of a node, how an edge changes a value, and which value
    is better. `along` must never make a value better, and must keep the order of two values.
    Only nodes at which an edge begins have a start; if edges have no direction, they begin at
    both ends.

    Shape:
        edges: the changes of a view with the columns `src`, `dst`, and those of `edge`.
            Repeated edges are counted; an edge with a null or a NaN is ignored.
        nodes: a view `(node, <value>)` with the key `node`, of the nodes that have a value.

    Args:
        value: Name and type of the value, as `"label BIGINT"`.
        edge: Further columns of an edge, as `"weight DOUBLE"`; `along` gets them.
        directed: Whether an edge leads from `src` to `dst` only.
        supersteps: Largest number of supersteps of a run; the rest continues in the next epoch.

    Attributes:
        _source: If a subclass sets it: the node at which all paths begin, of the type of nodes.
    """

    _source: Any = SourceNode()

    def __init__(
        self,
        value: str,
        *,
        node: str = "BIGINT",
        edge: str = "",
        directed: bool = False,
        supersteps: int = 100_000,
    ) -> None:
        names = ", ".join(["other", *Schema.parse(edge, where="edge").names]) if edge else "other"
        type_, more = value.strip().partition(" ")[2], f", {edge}" if edge else ""
        self.directed = directed
        self.no_edge = (None,) * names.count(",")
        self.key = f"node {node}"
        self.edges = Input(
            f"src {node}, dst {node}{more}, sign INT", route_by="src", changes="signed"
        )
        self.news = Loopback(
            f"node {node}, kind INT, told {type_}, other {node}{more}",
            route_by="node",
            supersteps=supersteps,
        )
        self.links = State(
            f"node {node}, other {node}{more}, mine BIGINT, theirs INT",
            keep=True,
            key=f"node, {names}",
        )
        self.support = State(
            f"node {node}, phase INT, waits BIGINT, again BOOLEAN, owes {node}, best {type_}, "
            f"other {node}{more}",
            not_compared=names,
        )
        self.nodes = View(f"node {node}, {value}", key="node")

    def start(self, node: Any) -> Any:
        """Return the initial value of a node; `None` means none."""
        raise NotImplementedError

    def along(self, value: Any, *edge: Any) -> Any:
        """Return the value that an edge makes of the one where it begins; `None` means none."""
        raise NotImplementedError

    def better(self, one: Any, other: Any) -> bool:
        """Return whether a value is better than another one; by default, whether it is less."""
        less: bool = one < other
        return less

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Apply the edges and messages that a node received."""
        call = _Call(self, key.node, group, out)
        call.take_edges()
        call.take_news()
        call.relink()
        call.decide()
        call.write()


class _Call:
    """One call of a node: what it knew, what came, what it tells."""

    def __init__(self, author: Propagate, node: Any, group: Any, out: Any) -> None:
        self._author, self._node, self._group, self._out = author, node, group, out
        none = (node, _VALID, 0, False, None, None, None)
        held: tuple[Any, ...] = next(iter(group.support), none)
        self._phase, self._waits, self._again, self._owes, self._best = held[1:6]
        link = held[6:]
        self._support: Link | None = None if link[0] is None else link
        self._value = next((row[1] for row in group.nodes), None)
        self._old = self._value
        self._changed: dict[Link, _Change] = {}
        self._asked: list[Link] = []
        self._is_lost = False

    def take_edges(self) -> None:
        if self._node is None or self._node != self._node:
            return
        for _, *link, sign in self._group.edges:
            if all(one is not None and one == one for one in link):
                self._change(tuple(link)).came += sign

    def take_news(self) -> None:
        """Apply the messages of other nodes; a better value supports the node, whatever it lost."""
        for row in self._group.news:
            kind, told, link = row[1], row[2], row[3:]
            if kind >= _LINK:
                self._change(link).theirs = kind - _LINK
                if kind == _LINK + _CUT:
                    self._lose(link)
            elif kind == _LOST:
                owes = link == self._support and self._phase == _VALID
                self._lose(link)
                if owes:
                    self._owes = link[0]
                else:
                    self._tell(link, _TRIMMED)
            elif kind == _ASK:
                self._asked.append(link)
            elif kind != _TELL:
                self._waits -= 1
            if told is not None and self._phase != _TRIMMING:
                self._consider(link, self._author.along(told, *link[1:]))

    def _consider(self, link: Link, value: Any) -> None:
        if value is None:
            return
        best = self._best if self._phase == _ASKING else self._value
        if best is None or self._author.better(value, best):
            self._support = link
            if self._phase == _ASKING:
                self._best = value
            else:
                self._value, self._is_lost = value, False

    def _lose(self, link: Link) -> None:
        if self._phase == _VALID:
            self._is_lost |= link == self._support
        else:
            self._again = True

    def relink(self) -> None:
        """Keep the links that changed; notice whether the node has a start now."""
        for link, change in self._changed.items():
            known = self._group.links.get(*link)
            change.resolve(*(known[-2:] if known else (0, _CUT)), mirrors=not self._author.directed)
            if change.mine or change.theirs:
                self._out.links(self._node, *link, change.mine, change.theirs)
            elif known:
                self._out.links.delete(*link)
        if not self._changed or self._phase != _VALID:
            return
        start, value = self._start(), self._value
        if start is not None and (value is None or not self._author.better(value, start)):
            self._value, self._support, self._is_lost = start, None, False
        elif value is not None and self._support is None:
            self._is_lost = start is None

    def decide(self) -> None:
        """Go from phase to phase until the node has to wait for answers."""
        if self._is_lost:
            self._phase, self._value, self._support = _TRIMMING, None, None
            for link, change in self._links():
                if change.before:
                    self._tell(link, _LOST)
                    self._waits += 1
        if self._phase == _TRIMMING and not self._waits:
            self._settle()
            self._ask()
        elif self._phase == _VALID:
            self._settle()
        if self._phase == _ASKING and not self._waits and self._again:
            self._ask()
        if self._phase == _ASKING and not self._waits:
            self._derive()

    def _settle(self) -> None:
        """Answer the node that took the support away: nothing depends on it any more."""
        if self._owes is not None:
            self._tell((self._owes, *self._author.no_edge), _TRIMMED)
            self._owes = None

    def _ask(self) -> None:
        self._phase, self._again, self._best, self._support = _ASKING, False, None, None
        for link, change in self._links():
            if change.theirs:
                self._tell(link, _ASK)
                self._waits += 1

    def _derive(self) -> None:
        start, best = self._start(), self._best
        if start is not None and (best is None or not self._author.better(best, start)):
            best, self._support = start, None
        self._phase, self._value, self._best = _VALID, best, None

    def write(self) -> None:
        """Answer the nodes that asked, tell the value to those that do not know it, and keep it."""
        value = self._value
        for link in self._asked:
            self._tell(link, _ANSWER, value)
        for link, change in self._changed.items():
            if change.level != change.before:
                self._tell(link, _LINK + change.level, value if change.level else None)
        if value is not None:
            self._out.nodes(self._node, value)
            if value != self._old:
                for link, change in self._links():
                    if change.level and change.before:
                        self._tell(link, _TELL, value)
        if self._phase != _VALID or self._support is not None:
            held = (self._phase, self._waits, self._again, self._owes, self._best)
            none = (None, *self._author.no_edge)
            self._out.support(self._node, *held, *(self._support or none))

    def _tell(self, link: Link, kind: int, told: Any = None) -> None:
        self._out.news(link[0], kind, told, self._node, *link[1:])

    def _start(self) -> Any:
        start = self._author.start(self._node)
        if start is None or not any(change.level for _, change in self._links()):
            return None
        return start

    def _change(self, link: Link) -> _Change:
        change = self._changed.get(link)
        if change is None:
            change = self._changed[link] = _Change()
        return change

    def _links(self) -> Iterator[tuple[Link, _Change]]:
        """Yield the links that there are now, and those that this call changed."""
        mirrors = not self._author.directed
        for row in self._group.links:
            if (link := row[1:-2]) not in self._changed:
                yield link, _Change().resolve(row[-2], row[-1], mirrors=mirrors)
        yield from self._changed.items()


@dataclass(slots=True)
class _Change:
    """The change of a link in a call.

    Attributes:
        came: Number of added edges, less removed ones.
        theirs: Level of the link back, as the other end said; until resolved, `None` if it said
            nothing.
        mine: Number of edges that lead along the link now.
        level, before: The link's level now, and before.
    """

    came: int = 0
    theirs: int | None = None
    mine: int = 0
    level: int = _CUT
    before: int = _CUT

    def resolve(self, mine: int, theirs: int, *, mirrors: bool) -> _Change:
        """Apply the change to the earlier values of the link; return this object."""
        self.mine = mine + self.came
        self.theirs = theirs if self.theirs is None else self.theirs
        self.before = _level(mine, theirs, mirrors=mirrors)
        self.level = _level(self.mine, self.theirs, mirrors=mirrors)
        return self


def _level(mine: int, theirs: int, *, mirrors: bool) -> int:
    if mine > 0:
        return _OWNS
    return _MIRRORS if mirrors and theirs == _OWNS else _CUT
