"""Rules for calls of an author's code, which every engine enforces alike."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from cbp.errors import (
    AuthorCodeError,
    AuthorMisuse,
    AuthorStateError,
    RecordsReturnedError,
    StateKeyForeignError,
)
from cbp.model.author.translator_state import Watch
from cbp.model.dataflow.routing import misrouting
from cbp.model.dataflow.stage import TranslatorSpec

__all__ = [
    "Fresh",
    "Watches",
    "error_class",
    "nothing_is_kept",
    "refuse_foreign",
    "refuse_returned",
]

_SHOWN_CHARACTERS = 200


def refuse_returned(value: object) -> None:
    """Refuse a value that a `translate` returned, since it would be lost.

    Raises:
        AuthorMisuse: The value is not `None`.
    """
    if value is not None:
        shown = repr(value)[:_SHOWN_CHARACTERS]
        message = f"it returned {shown}, which is lost: emit each record with out.<output>(...)"
        raise AuthorMisuse(RecordsReturnedError, message)


def refuse_foreign(state: str, emitted: object, called: object) -> None:
    """Refuse local state of a key other than the key of the emitting group.

    Raises:
        AuthorMisuse: The keys differ.
    """
    if emitted != called:
        message = (
            f"state {state!r}: a record of the key {emitted!r} was emitted by the group "
            f"{called!r}: a group replaces its own state only; to append a record to the state "
            f"of another key, write out.{state}.remote(...)"
        )
        raise AuthorMisuse(StateKeyForeignError, message)


def nothing_is_kept(name: str) -> AuthorMisuse:
    """Return the error for an attribute that an author set on `out`."""
    message = (
        f"out.{name} was set: which other calls would see it depends on the task and the machine; "
        "keep it in a variable for this group, or in a State"
    )
    return AuthorMisuse(AuthorStateError, message)


def error_class(exc: BaseException, function: str) -> type[AuthorCodeError]:
    """Return the class of coded error for an exception from an author's function.

    Args:
        exc: The exception.
        function: Name of the function, such as `UrlCount.translate` or `urls.route_by`.
    """
    if isinstance(exc, AuthorMisuse):
        return exc.leaf
    return misrouting(exc) if function.endswith(".route_by") else AuthorCodeError


class Fresh(Watch):
    """A translator with a fresh instance, for one task of one epoch.

    Attributes:
        spec: The translator to call.
    """

    def __init__(self, spec: TranslatorSpec, *, stage: str) -> None:
        name = f"{spec.name}.translate"
        super().__init__(spec.translate, stage=stage, name=name, place=spec.place)
        self.spec = spec if self._owner is None else replace(spec, translate=self.function)


class Watches:
    """Fresh objects for an author's other functions, such as `route_by`, made at the first call."""

    def __init__(self, spec: TranslatorSpec, *, stage: str) -> None:
        self._spec, self._stage = spec, stage
        self._by_function: dict[int, Watch] = {}

    def fresh(self, function: Callable[..., Any], name: str, place: str) -> Callable[..., Any]:
        """Return the function to call instead of a function of the translator.

        Args:
            function: The function. The translator holds it, so its identity does not change.
            name: Name of the function, such as `urls.route_by`.
            place: `file.py:12` of the function.
        """
        watch = self._by_function.get(id(function))
        if watch is None:
            name = f"{self._spec.name}.{name}"
            watch = Watch(function, stage=self._stage, name=name, place=place or self._spec.place)
            self._by_function[id(function)] = watch
        return watch.function

    def check(self) -> None:
        """Check that no object was changed by its calls.

        Raises:
            AuthorStateError: An object was changed.
        """
        for watch in self._by_function.values():
            watch.check()
