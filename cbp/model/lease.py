"""The lease by which one of several controllers leads, and what an instance does next.

    follows --(the lease is free: taken, epoch + 1)--> leads --(another epoch)--> retires
       ^                                                |  ^                         |
       |                              no news in time   v  | renewed                 |
       |                                              unsure                         |
       '-----------------------(its runs have ended)---------------------------------'

The row is judged by the clock of the database only. An instance also keeps, by a clock
of its own that never goes back, until when it may act: counted from before it asked, and
shorter than the lease, so that nobody else leads while it acts, as long as both clocks
run at nearly the same speed. An instance whose time ran out is *unsure*: it starts and
records nothing, keeps its runs, and goes on if the renewal comes before a rival.

Invariants (tests/cbp/model/test_lease.py): of any number of instances at most one may act
at a time; epochs only rise; who was replaced never acts under its old epoch again.
What clocks cannot promise, the epoch does: every write of the store names it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

__all__ = ["ACTING_SHARE", "Lease", "Role", "Standing", "Step", "Term", "next_step", "role_of"]

ACTING_SHARE = 0.8
"""Of a lease's time, counted by the instance's own clock, it acts; the rest is for drift."""


@dataclass(frozen=True, slots=True)
class Lease:
    """The row that says who leads.

    Attributes:
        epoch: Rises by one whenever it is taken; 0: nobody ever led.
        holder: Id of the instance that took it.
        address: Where that instance answers.
        expires_ms: Milliseconds since 1970 by the database's clock; free from then on.
    """

    epoch: int = 0
    holder: str = ""
    address: str = ""
    expires_ms: int = 0

    def taken(self, holder: str, address: str, *, now_ms: int, milliseconds: int) -> Lease | None:
        """Return the lease as `holder` has it; `None` while it is not free."""
        if self.expires_ms > now_ms:
            return None
        return Lease(self.epoch + 1, holder, address, now_ms + milliseconds)

    def renewed(self, epoch: int, *, now_ms: int, milliseconds: int) -> Lease | None:
        """Return the lease with new time, also if it ran out; `None`: another one took it."""
        if self.epoch != epoch:
            return None
        return replace(self, expires_ms=now_ms + milliseconds)

    def released(self, epoch: int) -> Lease:
        """Return the lease free at once, if this epoch still holds it."""
        return replace(self, expires_ms=0) if self.epoch == epoch else self


@dataclass(frozen=True, slots=True)
class Term:
    """A lease as the instance has it that holds it.

    Attributes:
        epoch: Of the lease.
        until: Until when it may act, in seconds of its own clock.
    """

    epoch: int
    until: float

    @classmethod
    def granted(cls, epoch: int, *, asked_at: float, seconds: float) -> Term:
        """Return the term of a lease of `seconds` that was asked for at `asked_at`."""
        return cls(epoch, asked_at + ACTING_SHARE * seconds)


class Role(StrEnum):
    """What an instance is; the picture heads the module."""

    FOLLOWS = "follows"
    LEADS = "leads"
    UNSURE = "unsure"
    RETIRES = "retires"


class Step(StrEnum):
    """What an instance does about the lease, each time it looks."""

    STAND = "stand"
    RENEW = "renew"
    REST = "rest"


def role_of(term: Term | None, *, retiring: bool, now: float) -> Role:
    """Return what an instance is, by its own clock; it acts only while it `LEADS`."""
    if retiring:
        return Role.RETIRES
    if term is None:
        return Role.FOLLOWS
    return Role.LEADS if now < term.until else Role.UNSURE


def next_step(role: Role, *, now: float, not_before: float) -> Step:
    """Return what to do about the lease now.

    Args:
        role: See `role_of`.
        now: By the instance's clock, in seconds.
        not_before: When it may stand again; who gave way lets others try first.
    """
    if role in (Role.LEADS, Role.UNSURE):
        return Step.RENEW
    if role is Role.RETIRES:
        return Step.REST  # it follows once nothing of its term is under way any more
    return Step.STAND if now >= not_before else Step.REST


@dataclass(frozen=True, slots=True)
class Standing:
    """How an instance stands, for people and for other instances.

    Attributes:
        epoch: Of the lease, as last seen.
        leader: Address of whoever leads; `""`: nobody does, or it is not known.
    """

    role: Role
    epoch: int
    leader: str
