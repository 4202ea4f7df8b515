"""Where records go: keys, `ALL`, multicast; messages and state. The exact semantics, once.

This is the specification that every engine is tested against. "Groups" are called
once per epoch with all records that reach them. Where the paper is silent it says so: [d].

**Routing.** `route_by` of an input is asked once per record. Columns, or `by(...)`, give
exactly one key. `route(...)` gives one destination, or a list or set of them:

1. A *key*: calls the group of that key, whether or not it has state. Null is a key; equal
   floats (both zeros, all NaNs) are one key.
2. `ALL`: every group found in this epoch's flows. A group is *found* in an input when a
   record of that input names it by key or by address, and in a state when the state
   holds its key. `All("a", "b")` reaches only the groups found in these inputs or states.
   Where it reaches a state, every key in it is called, also when its grouping is `inner`.
   What an `ALL` reaches is not thereby found for another `ALL` [d].
3. `Multicast(address)`: every key bound to the address. Only for records of a `Loopback`,
   and the bindings are those that were made in the epoch that wrote the record; so address
   and binding are written together, in any order, by any group of the stage. Bindings
   serve all loopbacks of the stage. Addresses are texts or integers; `1` and `"1"` differ [d].

A record reaches a *set* of groups: duplicates collapse, whatever named them [d: over kinds].
No destination (an empty list) means nobody, on purpose [d]. An address that nobody bound, or
an `ALL` that finds no group, is a *dead letter*: counted (`dead_letters`, one per destination),
no error, since the author cannot know who is there [d].

**Order.** Within group and input: (order_by, nulls first, ascending; increment; position),
however the record came to the group [d]. State: by (order_by, nulls first; all columns) [d].
Groups are visited by (unsigned hash of the key, key).

**Which groups are called.** Those that some record reaches; with a state of grouping `outer`,
every key of that state too. An epoch that reads no record calls nobody, also with `outer` [d].

**State.** All writes of an epoch are visible in the next. Of a *called* group, local writes
replace what it had: records that are not emitted again are gone. Groups that are not called
keep theirs. A write for another key is *remote*: it is appended to that key's records, after
the key's own local writes if it is called in the same epoch, and does not call it. Equal
records that are appended twice are two records [d]. Remote writes never replace. A
vectorised translator, which is called once for many groups, writes state of called keys only
and binds no addresses: which of its groups wrote a record cannot be known [d].

**Messages.** A `Loopback` is an output of the stage that is wired to an input of the same
name: what an epoch writes there is an increment that the stage consumes in a later epoch (the
next, unless its Runnable prefers other inputs), and it counts as an input: its records wake
groups. An empty one is not enqueued. The default Runnable of a stage with a loopback is `RunAny`:
`RunAll` would wait for messages that nobody can have sent [d]. The flow has a name like
any other, `stage.loopback`.

**Default.** A record of an input without `route_by` is a group of its own, equal ones included:
the call has it in its input and no key, every other input and every state is empty. So whatever
state it emits is remote. These groups are visited behind all others, input by input as declared,
in order of arrival; no `ALL` finds them, and none may name such an input [d]. State needs an
input with `route_by`; a vectorised translator needs it on every one, since it is given groups.

Source: CBP (SoCC'10), sections 2.1, 2.3, 4.5.1 and 4.5.3.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from cbp.errors import (
    AuthorCodeError,
    DestinationInvalidError,
    RouteFlowError,
    RouteKeyError,
)

__all__ = [
    "ALL",
    "All",
    "KeyMismatch",
    "Multicast",
    "Targets",
    "checked_address",
    "misrouting",
    "one_key",
    "targets",
]


class KeyMismatch(TypeError):
    """A value is no key of its stage."""


class Misdirected(ValueError):
    """A destination is none."""


class AddressMismatch(TypeError):
    """An address is none."""


class FlowUnknown(ValueError):
    """An `All` names a flow that is not there."""


@dataclass(frozen=True, slots=True, init=False)
class All:
    """Every group found in the named inputs and states; without names, in any.

    Attributes:
        flows: Names of inputs and states; empty: all of them.
    """

    flows: tuple[str, ...]

    def __init__(self, *flows: str) -> None:
        object.__setattr__(self, "flows", flows)


ALL = All()
"""Every group that is found in this epoch, in any input or state."""


@dataclass(frozen=True, slots=True)
class Multicast:
    """Every key that was bound to this address in the epoch that wrote the record."""

    address: str | int


@dataclass(frozen=True, slots=True)
class Targets:
    """What a route function gave for one record, taken apart; nothing is resolved yet.

    Attributes:
        keys: As the author gave them; types are not checked.
        addresses: Of multicasts.
        alls: Broadcasts.
    """

    keys: tuple[Any, ...] = ()
    addresses: tuple[str | int, ...] = ()
    alls: tuple[All, ...] = ()


def targets(given: Any, flows: Collection[str], *, messages: bool) -> Targets:
    """Take apart what a route function returned.

    Args:
        given: One destination, or a list, set or frozenset of them.
        flows: Names that an `All` may give.
        messages: Whether the record is one of a `Loopback`.

    Raises:
        TypeError: An address is neither text nor integer.
        ValueError: An `All` names a flow that is not there; or an address for a record that
            is no message.
    """
    keys, addresses, alls = [], [], []
    for each in given if isinstance(given, list | set | frozenset) else (given,):
        if isinstance(each, Multicast):
            addresses.append(checked_address(each.address))
            if not messages:
                message = (
                    f"{each}: an address reaches only records of a Loopback, since bindings "
                    "belong to the epoch that wrote the record"
                )
                raise Misdirected(message)
        elif isinstance(each, All):
            _check_flows(each, flows)
            alls.append(each)
        else:
            keys.append(each)
    return Targets(tuple(keys), tuple(addresses), tuple(alls))


def one_key(given: Any) -> Any:
    """Return what a function of `by(...)` gave, which is exactly one key.

    Raises:
        KeyMismatch: It is what only `route(...)` may give.
    """
    if isinstance(given, list | set | frozenset | All | Multicast):
        message = (
            f"by(...) gives one key, got {given!r}; "
            "for several keys, ALL or Multicast declare route_by=route(...)"
        )
        raise KeyMismatch(message)
    return given


def misrouting(exc: BaseException) -> type[AuthorCodeError]:
    """Return the class of error for what came out of a route function, or of a look at its value.

    Args:
        exc: Of ours, or whatever the author's function raised.
    """
    if isinstance(exc, FlowUnknown):
        return RouteFlowError
    if isinstance(exc, Misdirected | AddressMismatch):
        return DestinationInvalidError
    # Python says so of a set of destinations that holds what is none.
    unhashable = isinstance(exc, TypeError) and str(exc).startswith("unhashable type")
    return RouteKeyError if unhashable or isinstance(exc, KeyMismatch) else AuthorCodeError


def checked_address(address: Any) -> str | int:
    """Return a multicast address; refuse what could not be kept durably.

    Raises:
        TypeError: It is neither text nor integer.
    """
    if isinstance(address, bool) or not isinstance(address, str | int):
        message = f"a multicast address is a text or an integer, got {address!r}"
        raise AddressMismatch(message)
    return address


def _check_flows(destination: All, flows: Collection[str]) -> None:
    given: tuple[Any, ...] = destination.flows
    for name in given:
        if not isinstance(name, str):
            message = f"All(...) takes names of inputs and states, got {name!r}"
            raise FlowUnknown(message)
        if name not in flows:
            message = f"All names the flow {name!r}; there is {', '.join(flows)}"
            raise FlowUnknown(message)
