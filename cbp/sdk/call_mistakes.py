"""What is wrong with the code of a `translate`, as far as it shows without data; pure."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterator, Mapping
from types import FunctionType
from typing import Any

from cbp.model.author.bytecode import attributes_of_a_local

__all__ = ["parameters_mistake", "unemitted_states"]

_PARAMETERS: Mapping[str, tuple[str, ...]] = {
    "groupwise": ("key", "group", "out"),
    "record": ("record", "out"),
    "arrow": ("groups", "out"),
    "run": ("tables", "out"),
    "sql": ("frames", "out"),
}
"""What a `translate` of each form is called with."""


def parameters_mistake(stage: Any, form: str) -> str:
    """Return why a `translate` cannot be called; empty if it can.

    Args:
        stage: The translator.
        form: Its form, or `record`.
    """
    names = _PARAMETERS[form]
    try:
        inspect.signature(stage.translate).bind(*names)
    except TypeError:
        given = inspect.signature(type(stage).translate)
        return f"write def translate(self, {', '.join(names)}); got translate{given}"
    return ""


def unemitted_states(translate: Callable[..., Any], states: Collection[str]) -> Iterator[str]:
    """Yield the states that a groupwise `translate` reads, and surely never emits.

    Nothing is sure if `out` is handed on, or `group` is.

    Args:
        translate: The function of the class, with `self`.
        states: The states of which a group keeps what it emits again.
    """
    if not isinstance(translate, FunctionType) or translate.__code__.co_argcount != 4:
        return
    _, _, group, out = translate.__code__.co_varnames[:4]
    read = attributes_of_a_local(translate.__code__, group)
    emitted = attributes_of_a_local(translate.__code__, out)
    if read is not None and emitted is not None:
        yield from (name for name in states if name in read - emitted)
