"""The lease: leader election among controller instances, and the next step of an instance.

    follows --(the lease is free: taken, epoch + 1)--> leads --(another epoch)--> retires
       ^                                                |  ^                         |
       |                              no news in time   v  | renewed                 |
       |                                              unsure                         |
       '-----------------------(its runs have ended)---------------------------------'

Only the clock of the database decides whether the lease is free. An instance also keeps the time
until which it may act, by its own clock, which never goes back. That time counts from the moment
before its request and is shorter than the lease. So no other instance leads while it acts, as long
as both clocks run at nearly the same speed. An instance whose time ran out is *unsure*: it starts
and records nothing, keeps its runs, and continues if it renews the lease before another instance
takes it.

The *fence* enforces this: it refuses every durable effect of an instance that may not act. It is in
`controller.loop.leadership.lease_keeper`; the store has its own fence, by epoch
(`controller.store.methods.leases`), and so have the logs (`controller.loop.leadership.terms`).

Invariants (tests/cbp/model/schedule/test_lease.py): at most one instance may act at a time; epochs
only rise; a replaced instance never acts under its old epoch again. If the clocks fail, the epoch
still protects the store: every write names it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

ACTING_SHARE = 0.8
"""Share of a lease's time in which an instance acts, by its own clock; the rest is for drift."""


@dataclass(frozen=True, slots=True)
class Lease:
    """The row of the store that names the leader.

    Attributes:
        epoch: Rises by one whenever the lease is taken; 0 if it never was.
        holder, address: Id of the instance that took it, and where that instance answers.
        expires_ms: When it becomes free, in milliseconds since 1970 by the database's clock.
    """

    epoch: int = 0
    holder: str = ""
    address: str = ""
    expires_ms: int = 0


@dataclass(frozen=True, slots=True)
class Term:
    """A lease as its holder sees it: the holder may act `until` this second of its own clock."""

    epoch: int
    until: float

    @classmethod
    def granted(cls, epoch: int, *, asked_at: float, seconds: float) -> Term:
        """Return the term of a lease of `seconds` that was requested at `asked_at`."""
        return cls(epoch, asked_at + ACTING_SHARE * seconds)


class Role(StrEnum):
    """The role of an instance, as in the module header; it acts only while it leads."""

    FOLLOWS = "follows"
    LEADS = "leads"
    UNSURE = "unsure"
    RETIRES = "retires"


class Step(StrEnum):
    """The action of an instance on the lease, at each check."""

    STAND = "stand"
    RENEW = "renew"
    REST = "rest"


def role_of(term: Term | None, *, retiring: bool, now: float) -> Role:
    """Return the role of an instance, by its own clock."""
    if retiring:
        return Role.RETIRES
    if term is None:
        return Role.FOLLOWS
    return Role.LEADS if now < term.until else Role.UNSURE


def next_step(role: Role, *, now: float, not_before: float) -> Step:
    """Return the next action on the lease.

    An instance that gave it up lets others try first, until `not_before` by its own clock.
    """
    if role in (Role.LEADS, Role.UNSURE):
        return Step.RENEW
    if role is Role.RETIRES:
        return Step.REST  # it follows once no run of its term is under way
    return Step.STAND if now >= not_before else Step.REST


@dataclass(frozen=True, slots=True)
class Standing:
    """The role of an instance as shown to others, with the last seen epoch and leader's address."""

    role: Role
    epoch: int
    leader: str
