"""A join that emits what became of its pairs by records with a sign, as an author may write one."""

from __future__ import annotations

from typing import Any

from cbp import Input, Output, RunAny, State, Translate

__all__ = ["Pairs"]


class Pairs(Translate):
    """Pair the sums of two sides; a pair that is no longer right is taken back.

    Two changes of a pair are emitted in two epochs, and as one in one epoch. So how many records it
    writes depends on when it runs; the sum of their signs does not.
    """

    runnable = RunAny()
    left = Input("word STRING, n BIGINT", route_by="word")
    right = Input("word STRING, n BIGINT", route_by="word")
    sums = State("word STRING, l BIGINT, r BIGINT")
    pairs = Output("word STRING, sign INT, l BIGINT, r BIGINT")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Take the old pair back, and tell the new one."""
        old = next(iter(group.sums), None)
        left, right = (old.l, old.r) if old else (0, 0)
        left += sum(row.n for row in group.left)
        right += sum(row.n for row in group.right)
        out.sums(key.word, left, right)
        if old and (old.l, old.r) != (left, right):
            out.pairs(key.word, -1, old.l, old.r)
        if old is None or (old.l, old.r) != (left, right):
            out.pairs(key.word, 1, left, right)
