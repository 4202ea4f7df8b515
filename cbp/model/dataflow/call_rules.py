"""Rules for calls of an author's code, which every engine enforces alike."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, NoReturn

from cbp.errors import (
    AuthorCodeError,
    AuthorMisuse,
    AuthorStateError,
    OutputKeyForeignError,
    OutputKeyTwiceError,
    RecordsReturnedError,
    StateExpiresRemoteError,
    StateKeptRemoteError,
    StateKeyForeignError,
    ViewKeyTwiceError,
    ViewRemoteError,
    text_of,
)
from cbp.model.author.translator_state import StateWatch
from cbp.model.dataflow.routing import misrouting
from cbp.model.dataflow.stage import TranslatorSpec
from cbp.model.flow.attributes import attribute

_SHOWN_CHARACTERS = 200

_AT_A_TIME = 4_096
"""Maximum number of records that are read from an iterable before they are emitted."""

Tuples = Sequence[tuple[Any, ...]]


def emitting_many(
    flow: str, width: int, emit: Callable[..., None], put: Callable[[Tuples], None] | None = None
) -> Callable[[Iterable[Any]], None]:
    """Return `out.<flow>.many`, which emits a record for each tuple of an iterable.

    Args:
        flow: An output, a loopback or a state, with this number of columns.
        put: Emits many tuples of this width; `None` means that tuples are emitted one by one.
    """

    def many(rows: Iterable[Any]) -> None:
        left = iter(rows)
        while some := list(islice(left, _AT_A_TIME)):
            if put is not None and {*map(type, some)} == {tuple} and {*map(len, some)} == {width}:
                put(some)
                continue
            for row in some:
                if not isinstance(row, tuple):
                    wants = f"out.{flow}.many takes tuples with one value for each column"
                    message = f"{wants}; got {text_of(row, repr)[:_SHOWN_CHARACTERS]}"
                    raise TypeError(message)
                emit(*row)

    many.__qualname__ = f"out.{flow}.many"
    return many


def refuse_returned(value: object) -> None:
    """Refuse a value that a `translate` returned, since it would be lost."""
    if value is not None:
        shown = text_of(value, repr)[:_SHOWN_CHARACTERS]
        message = (
            f"translate returned {shown}, but returned values are lost: emit each record with "
            "out.<output>(...)"
        )
        raise AuthorMisuse(RecordsReturnedError, message)


def refuse_foreign(state: str, emitted: object, called: object) -> None:
    """Refuse local state of a key other than the key of the emitting group."""
    if emitted != called:
        message = (
            f"state {state!r}: the group {called!r} emitted a record with the key {emitted!r}, but "
            "a group can replace only its own state. To append a record to the state of another "
            f"key, write out.{state}.remote(...)"
        )
        raise AuthorMisuse(StateKeyForeignError, message)


def refuse_remote(state: str, *_: object, **__: object) -> None:
    """Refuse a remote write to a kept state: only the group of a key puts records of that key."""
    why = "is kept (keep=True), so only the group of a key can put and delete records of that key"
    raise AuthorMisuse(StateKeptRemoteError, _not_remote(state, why))


def refuse_expiring_remote(state: str, *_: object, **__: object) -> None:
    """Refuse a remote write to a state that expires: it could not set the age of the records."""
    why = "expires, so only the group of a key can write records of that key and set their age"
    raise AuthorMisuse(StateExpiresRemoteError, _not_remote(state, why))


def _not_remote(state: str, why: str) -> str:
    return (
        f"out.{state}.remote(...) is not possible: the state {why}. Send that group a message "
        f"(Loopback), and call out.{state}(...) when the group is called"
    )


def refuse_view_row(view: str, *_: object, **__: object) -> None:
    """Refuse a record of a view that the group of its key did not emit."""
    message = (
        f"view {view!r}: only the group of a key can emit the record of that key, and .remote "
        "is not possible. Send that group a message (Loopback), and emit the record when the group "
        "is called"
    )
    raise AuthorMisuse(ViewRemoteError, message)


def refuse_twice(view: str, key: object) -> NoReturn:
    """Refuse the second record of one key of a view, or of a kept state in SQL."""
    message = (
        f"a group emitted two records with the key {key!r} to {view!r}. Emit only one of them, or "
        "declare a key in which they differ"
    )
    raise AuthorMisuse(ViewKeyTwiceError, message)


def refuse_output_foreign(output: str, emitted: object, called: object = None) -> NoReturn:
    """Refuse an output record whose key is not its group's key `called` (`None`: unknown)."""
    by = "a group" if called is None else f"the group {called!r}"
    message = (
        f"output {output!r}: {by} emitted a record with the key {emitted!r}, which is not its own, "
        "so two groups might emit the same key in one epoch. Let the group of this key emit the "
        "record (send it a message by a Loopback), or declare latest_by=... to choose which record "
        "of a key counts"
    )
    raise AuthorMisuse(OutputKeyForeignError, message)


def refuse_output_twice(output: str, key: object) -> NoReturn:
    """Refuse the second record of one key of an output in one epoch."""
    message = (
        f"output {output!r}: a group emitted two records with the key {key!r} in one epoch; emit "
        "only one of them, declare a key in which they differ, or declare latest_by=... to choose "
        "one"
    )
    raise AuthorMisuse(OutputKeyTwiceError, message)


def nothing_is_kept(name: str) -> AuthorMisuse:
    """Return the error for an attribute that an author set on `out`."""
    message = (
        f"out.{name} was set, but only calls in the same task would see this value. Keep the value "
        "in a local variable, or in a State"
    )
    return AuthorMisuse(AuthorStateError, message)


def emitted_columns(spec: TranslatorSpec) -> dict[str, list[str]]:
    """Return the parameters of `out.<name>(...)` for each output, loopback and state, by name."""
    flows = [(output.name, output.schema) for output in spec.emitted]
    flows += [(state.name, state.schema) for state in spec.states if not state.expires]
    return {name: [attribute(column) for column in schema.names] for name, schema in flows}


def error_class(exc: BaseException, function: str) -> type[AuthorCodeError]:
    """Return the class of coded error for an exception from an author's function."""
    if isinstance(exc, AuthorMisuse):
        return exc.leaf
    return misrouting(exc) if function.endswith(".route_by") else AuthorCodeError


class Fresh(StateWatch):
    """A translator with a fresh instance, for one task of one epoch."""

    def __init__(self, spec: TranslatorSpec, *, stage: str) -> None:
        name = f"{spec.name}.translate"
        super().__init__(spec.translate, stage=stage, name=name, place=spec.place)
        self.spec = spec if self._owner is None else replace(spec, translate=self.function)


class Watches:
    """Fresh objects for an author's other functions, such as `route_by`, made at the first call."""

    def __init__(self, spec: TranslatorSpec, *, stage: str) -> None:
        self._spec, self._stage = spec, stage
        self._by_function: dict[int, StateWatch] = {}

    def fresh(self, function: Callable[..., Any], name: str, place: str) -> Callable[..., Any]:
        """Return the function to call instead of a function of the translator."""
        watch = self._by_function.get(id(function))
        if watch is None:
            name, place = f"{self._spec.name}.{name}", place or self._spec.place
            watch = StateWatch(function, stage=self._stage, name=name, place=place)
            self._by_function[id(function)] = watch
        return watch.function

    def check(self) -> None:
        """Check that no object was changed by its calls."""
        for watch in self._by_function.values():
            watch.check()
