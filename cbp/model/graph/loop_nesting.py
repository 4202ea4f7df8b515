"""Nested loops: the loops whose messages are delivered next, and those whose messages wait.

    >>> loops = Nesting({"rounds": "", "backward": "rounds", "forward": "backward"})
    >>> sorted(loops.next_of({"rounds", "forward"}))
    ['forward']
    >>> sorted(loops.next_of({"rounds"}))
    ['rounds']

A loop has the name of its loopback, and may be inside one other loop. A loop with waiting messages
is next unless a loop inside it has waiting messages, too. So when a message of an outer loop is
delivered, the loops inside it have no messages left. Two loops do not wait for each other unless
one is inside the other.

Source: timestamps (epoch, outer, inner) and notifications of Naiad (SOSP'13; CACM 59(10), 2016).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Nesting:
    """Maps each loop to the loop directly around it; `""` means none."""

    outer: Mapping[str, str]

    def around(self, loop: str) -> Iterator[str]:
        """Yield the loops around a loop, innermost first, each of them once."""
        seen, at = set[str](), self.outer.get(loop, "")
        while at and at not in seen:
            seen.add(at)
            yield at
            at = self.outer.get(at, "")

    def within(self, loop: str) -> frozenset[str]:
        """Return a loop and all loops inside it, at any depth."""
        return frozenset({loop, *(one for one in self.outer if loop in self.around(one))})

    @property
    def around_others(self) -> frozenset[str]:
        """The loops with a loop inside them; only their messages ever wait."""
        return frozenset(self.outer.values()) - {""}

    def next_of(self, waiting: Collection[str]) -> frozenset[str]:
        """Return which of the loops with waiting messages get their messages delivered next."""
        return frozenset(waiting).difference(*map(self.around, waiting))

    def ended(self, ends: Collection[str], read: Collection[str]) -> frozenset[str]:
        """Return the loops that must have no messages left after a step that ends some loops.

        Args:
            ends: The loops that the step ends, each with all inside it; `""` means all loops.
            read: The loops whose messages the step read. A step ends a loop only if it read
                messages of that loop, or of a loop inside it. The step that starts a loop reads
                none of these.
        """
        loops = [self.within(one) if one else frozenset(self.outer) for one in ends]
        return frozenset().union(*(loop for loop in loops if not loop.isdisjoint(read)))

    def is_cyclic(self, loop: str) -> bool:
        """Return whether a loop is inside itself, directly or not."""
        return loop in self.around(loop)
