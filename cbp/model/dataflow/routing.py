"""Routing: keys, `ALL` (broadcast), multicast, messages and state. The specification of an epoch.

Every engine is tested against this specification. A group is called once per epoch with all records
that reach it. [d] marks our decisions where the paper does not specify the behaviour.

**Routing.** `route_by` of an input is evaluated once per record. Columns, or `by(...)`, give
exactly one key. `route(...)` gives one destination, or a list or set of destinations:

1. A *key* calls the group of that key, whether or not it has state. Null is a key; equal
   floats (both zeros, all NaNs) are one key.
2. `ALL` reaches every group found in this epoch's flows. A group is *found* in an input if a
   record of that input names it by key or by address, and in a state if the state
   holds its key. `All("a", "b")` reaches only the groups found in these inputs or states.
   If it reaches a state, every key in the state is called, also with grouping `inner`.
   A group that only an `ALL` reaches is not found by it: another `ALL` does not reach it [d].
3. `Multicast(address)` reaches every key bound to the address. It is only for records of a
   `Loopback`. Only bindings made in the epoch that wrote the record count. So address and
   binding are written in the same epoch, in any order, by any group of the stage. Bindings
   apply to all loopbacks of the stage. Addresses are texts or integers; `1` and `"1"` differ [d].

A record reaches a *set* of groups: a group that is named twice, even by different kinds of
destinations, gets the record once [d: over kinds]. No destination (an empty list) deliberately
means no group [d]. An unbound address, or an `ALL` that finds no group, is a *dead letter*. Dead
letters are counted (`dead_letters`, one per destination) and are no error, since the author cannot
know which groups exist [d].

**Order.** Within a group and an input: (order_by, nulls first, ascending; increment; position),
however the record came to the group [d]. State: by (order_by, nulls first; all columns) [d].
Groups are visited by (unsigned hash of the key, key).

**Which groups are called.** Those that some record reaches. With a state of grouping `outer`, every
key of that state too. An epoch that reads no record calls no group, even with `outer` [d].

**State.** All writes of an epoch are visible in the next. For a *called* group, local writes
replace its records: records that are not emitted again are gone. Groups that are not called
keep their records. A write for another key is *remote*: it is appended to that key's records, after
the key's own local writes if that key is called in the same epoch, and does not call that key.
Equal records that are appended twice are two records [d]. Remote writes never replace. A
vectorised translator, which is called once for many groups, writes state of called keys only and
binds no addresses, since it is unknown which of its groups wrote a record [d].

**Views.** A view is a state with a key: the columns of the stage's key, and a *second key* that
names a record within its group. A group writes its own records only, at most one per key. The
changes of its records in an epoch are an output with the view's name, to which no author's code
emits (`cbp.model.flow.signed_changes`). The order: groups as visited; within a group by the second
key, nulls first; before precedes after. An input declares whether it reads all changes or only new
records; changes that it does not read call no group. Values are compared: 0.0 in place of -0.0 is
not a change [d].

**Messages.** A `Loopback` is an output of the stage that is wired to an input of the same name.
What an epoch writes there is an increment that the stage consumes in a later epoch (the next,
unless its Runnable prefers other inputs). It counts as an input: its records call groups. An empty
increment is not enqueued. The default Runnable of a stage with a loopback is `RunAny`, since
`RunAll` would wait for messages that no group can have sent [d]. The flow has a name like
any other, `stage.loopback`.

**Default.** A record of an input without `route_by` is a group of its own, even if another record
is equal: it is called alone with no key, and every other input and every state is empty. So all
state that it emits is remote. These groups are visited after all others, input by input as
declared, in order of arrival. No `ALL` finds them, and no `All(...)` may name such an input [d].
State needs an input with `route_by`; a vectorised translator needs it on every input, since it is
called with groups.

Source: CBP (SoCC'10), sections 2.1, 2.3, 4.5.1 and 4.5.3.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from cbp.errors import AuthorCodeError, DestinationInvalidError, RouteFlowError, RouteKeyError


class KeyMismatch(TypeError):
    """A value is not a key of its stage."""


class Misdirected(ValueError):
    """A value is not a valid destination."""


class AddressMismatch(TypeError):
    """A value is not a valid address."""


class FlowUnknown(ValueError):
    """An `All` names a flow that does not exist."""


@dataclass(frozen=True, slots=True, init=False)
class All:
    """Broadcast to every group found in the named inputs and states, or by default in all."""

    flows: tuple[str, ...]

    def __init__(self, *flows: str) -> None:
        object.__setattr__(self, "flows", flows)


ALL = All()
"""Broadcast to every group that is found in this epoch, in any input or state."""


@dataclass(frozen=True, slots=True)
class Multicast:
    """Every key that was bound to this address in the epoch that wrote the record."""

    address: str | int


@dataclass(frozen=True, slots=True)
class Targets:
    """The destinations that a route function returned for one record, by kind; not yet checked."""

    keys: tuple[Any, ...] = ()
    addresses: tuple[str | int, ...] = ()
    alls: tuple[All, ...] = ()


def targets(given: Any, flows: Collection[str], *, messages: bool) -> Targets:
    """Sort by kind the destination or destinations that a route function returned.

    Args:
        flows: Names that an `All` can name; `FlowUnknown` if it names another.
        messages: Whether the record came from a `Loopback`; `Misdirected` if any other record has
            an address.
    """
    keys, addresses, alls = [], [], []
    for each in given if isinstance(given, list | set | frozenset) else (given,):
        if isinstance(each, Multicast):
            addresses.append(checked_address(each.address))
            if not messages:
                message = (
                    f"{each}: only a record of a Loopback can be sent to an address, since an "
                    "address is bound in the epoch that wrote the record"
                )
                raise Misdirected(message)
        elif isinstance(each, All):
            _check_flows(each, flows)
            alls.append(each)
        else:
            keys.append(each)
    return Targets(tuple(keys), tuple(addresses), tuple(alls))


def one_key(given: Any) -> Any:
    """Return the key that a function of `by(...)` returned; `KeyMismatch` if it is not one key."""
    if isinstance(given, list | set | frozenset | All | Multicast):
        message = (
            f"the function of by(...) must return one key, but returned {given!r}; to return "
            "several keys, ALL or Multicast, declare route_by=route(...)"
        )
        raise KeyMismatch(message)
    return given


def misrouting(exc: BaseException) -> type[AuthorCodeError]:
    """Return the error class for an exception from a route function or the check of its result."""
    if isinstance(exc, FlowUnknown):
        return RouteFlowError
    if isinstance(exc, Misdirected | AddressMismatch):
        return DestinationInvalidError
    # Python raises this for a set of destinations with an unhashable value.
    unhashable = isinstance(exc, TypeError) and str(exc).startswith("unhashable type")
    return RouteKeyError if unhashable or isinstance(exc, KeyMismatch) else AuthorCodeError


def checked_address(address: Any) -> str | int:
    """Return a multicast address; refuse values that could not be stored (`AddressMismatch`)."""
    if isinstance(address, bool) or not isinstance(address, str | int):
        message = f"a multicast address must be a string or an integer, got {address!r}"
        raise AddressMismatch(message)
    return address


def _check_flows(destination: All, flows: Collection[str]) -> None:
    given: tuple[Any, ...] = destination.flows
    for name in given:
        if not isinstance(name, str):
            message = f"All(...) takes names of inputs and states, got {name!r}"
            raise FlowUnknown(message)
        if name not in flows:
            message = (
                f"All(...) names {name!r}, which is neither an input nor a state of this stage; "
                f"use one of {', '.join(flows)}"
            )
            raise FlowUnknown(message)
