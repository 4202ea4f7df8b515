"""Rules for calls of an author's code, which every engine enforces alike."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
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


def refuse_returned(value: object) -> None:
    """Refuse a value that a `translate` returned, since it would be lost."""
    if value is not None:
        shown = text_of(value, repr)[:_SHOWN_CHARACTERS]
        message = f"it returned {shown}, which is lost: emit each record with out.<output>(...)"
        raise AuthorMisuse(RecordsReturnedError, message)


def refuse_foreign(state: str, emitted: object, called: object) -> None:
    """Refuse local state of a key other than the key of the emitting group."""
    if emitted != called:
        message = (
            f"state {state!r}: a record of the key {emitted!r} was emitted by the group "
            f"{called!r}: a group replaces its own state only; to append a record to the state "
            f"of another key, write out.{state}.remote(...)"
        )
        raise AuthorMisuse(StateKeyForeignError, message)


def refuse_remote(state: str, *_: object, **__: object) -> None:
    """Refuse a remote write to a kept state, to which only its own group puts records."""
    message = (
        f"state {state!r} is kept (keep=True): only the group of a key puts and deletes its "
        f"records, since no two may have the same key; send the key a message (Loopback), and "
        f"call out.{state}(...) there"
    )
    raise AuthorMisuse(StateKeptRemoteError, message)


def refuse_expiring_remote(state: str, *_: object, **__: object) -> None:
    """Refuse a remote write to a state that expires: its group would have no age."""
    message = (
        f"state {state!r} expires: only a call of the group of a key writes its records, and sets "
        f"their age; send the key a message (Loopback), and call out.{state}(...) there"
    )
    raise AuthorMisuse(StateExpiresRemoteError, message)


def refuse_view_row(view: str, *_: object, **__: object) -> None:
    """Refuse a record of a view that the group of its key did not emit."""
    message = (
        f"view {view!r}: only the group of a key emits its record, without .remote; send the group "
        "a message (a Loopback), and let it emit the record"
    )
    raise AuthorMisuse(ViewRemoteError, message)


def refuse_twice(view: str, key: object) -> NoReturn:
    """Refuse the second record of one key of a view, or of a kept state in SQL."""
    message = (
        f"{view!r}: a group emitted two records of the key {key!r}; emit one of them, or "
        "declare a key that distinguishes them"
    )
    raise AuthorMisuse(ViewKeyTwiceError, message)


def refuse_output_foreign(output: str, emitted: object, called: object = None) -> NoReturn:
    """Refuse a record of an output with a key that the group of its key did not emit.

    Args:
        emitted: The group's key in the record.
        called: The key of the group that emitted it; `None` if that is not known.
    """
    by = "" if called is None else f" by the group {called!r}"
    message = (
        f"output {output!r}: a record of the key {emitted!r} was emitted{by}, so two groups might "
        "emit one key in one epoch; emit it in a call of its group (send that a Loopback message), "
        "or declare latest_by=... to say which record of a key counts"
    )
    raise AuthorMisuse(OutputKeyForeignError, message)


def refuse_output_twice(output: str, key: object) -> NoReturn:
    """Refuse the second record of one key of an output in one epoch.

    Args:
        key: Values of its key, in its order.
    """
    message = (
        f"output {output!r}: a group emitted two records of the key {key!r} in one epoch; emit the "
        "one that counts, declare a key that distinguishes them, or declare latest_by=..."
    )
    raise AuthorMisuse(OutputKeyTwiceError, message)


def nothing_is_kept(name: str) -> AuthorMisuse:
    """Return the error for an attribute that an author set on `out`."""
    message = (
        f"out.{name} was set: which other calls would see it depends on the task and the machine; "
        "keep it in a variable for this group, or in a State"
    )
    return AuthorMisuse(AuthorStateError, message)


def emitted_columns(spec: TranslatorSpec) -> dict[str, list[str]]:
    """Return the parameters of `out.<name>(...)` by name: of each output, loopback and state."""
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
            name = f"{self._spec.name}.{name}"
            watch = StateWatch(
                function, stage=self._stage, name=name, place=place or self._spec.place
            )
            self._by_function[id(function)] = watch
        return watch.function

    def check(self) -> None:
        """Check that no object was changed by its calls."""
        for watch in self._by_function.values():
            watch.check()
