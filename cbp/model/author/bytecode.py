"""Bytecode as a canonical text, which is the same in every process of one interpreter.

The text leaves out what does not change behaviour: line numbers, file names, comments, docstrings,
and the order of a set of constants, which depends on the hash seed of the process.
"""

from __future__ import annotations

import dis
from collections.abc import Iterator
from functools import lru_cache
from types import CodeType
from typing import Any

_SILENT = frozenset({"CACHE", "EXTENDED_ARG", "NOP", "RESUME"})
_NOTES = frozenset({"__doc__", "__firstlineno__", "__static_attributes__"})
"""Metadata that a class body stores and that does not change behaviour."""

_FLAGS = 0x0F | 0x20 | 0x80 | 0x100 | 0x200
"""Code flags that matter for a call: arguments, generators, coroutines; no compiler flags."""

_KEPT = 4_096
"""Number of code objects whose texts are cached: many stages can name one translator."""

_GLOBAL = frozenset({"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"})


@lru_cache(_KEPT)
def code_text(code: CodeType) -> str:
    """Return all parts of a code object that determine its effect, including nested code."""
    given = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    shape = (code.co_name, code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount)
    instructions = list(_instructions(code))
    ordinals = {one.offset: at for at, one in enumerate(instructions)}

    def ordinal(offset: int) -> int:
        while offset not in ordinals and offset < len(code.co_code):
            offset += 2  # skipped instructions do nothing: use the next one
        return ordinals.get(offset, len(instructions))

    body = [f"{one.opname} {_argument(one, ordinal)}" for one in instructions]
    handlers = [
        f"{ordinal(one.start)}-{ordinal(one.end)}:{ordinal(one.target)}:{one.depth}:{one.lasti}"
        for one in getattr(dis.Bytecode(code), "exception_entries", ())
    ]
    head = f"{shape} {given} {code.co_flags & _FLAGS}"
    return "\n".join((head, *body, *handlers))


def constant_text(value: Any) -> str:
    """Return a constant of a code object as text, with its type: `1`, `1.0` and `True` differ."""
    if isinstance(value, CodeType):
        return f"<{code_text(value)}>"
    if isinstance(value, tuple):
        return f"({', '.join(map(constant_text, value))})"
    if isinstance(value, frozenset):
        return f"{{{', '.join(sorted(map(constant_text, value)))}}}"
    return f"{type(value).__name__} {value!r}"


def nested(code: CodeType) -> Iterator[CodeType]:
    """Yield a code object and those of the functions and classes inside it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from nested(constant)


@lru_cache(_KEPT)
def names_of(code: CodeType) -> tuple[frozenset[str], frozenset[str]]:
    """Return the global names that a code object reads, and the attribute names that it uses."""
    globals_: set[str] = set()
    attributes: set[str] = set()
    for one in nested(code):
        attributes.update(one.co_names)
        globals_.update(i.argval for i in dis.get_instructions(one) if i.opname in _GLOBAL)
    return frozenset(globals_), frozenset(attributes)


def reads_of_a_local(code: CodeType) -> frozenset[str]:
    """Return the attributes that a code object reads from its local variables, except `self`."""
    names: set[str] = set()
    for one in nested(code):
        before = None
        for step in dis.get_instructions(one):
            if step.opname == "LOAD_ATTR" and before is not None and _is_local(before):
                names.add(step.argval)
            before = step
    return frozenset(names)


def attributes_of_a_local(code: CodeType, local: str) -> frozenset[str] | None:
    """Return the attributes of a local variable that a code object and its nested ones read.

    `None` if the variable is used in any other way, for example passed on or assigned.
    """
    names: set[str] = set()
    for one in nested(code):
        steps = [step for step in dis.get_instructions(one) if step.opname not in _SILENT]
        for step, follows in zip(steps, [*steps[1:], *steps[:1]], strict=True):
            loaded = step.argval if isinstance(step.argval, tuple) else (step.argval,)
            if local not in loaded or step.opname in ("MAKE_CELL", "LOAD_CLOSURE"):
                continue
            is_last = _is_local(step) and loaded[-1] == local and loaded.count(local) == 1
            if not is_last or follows.opname not in ("LOAD_ATTR", "LOAD_METHOD"):
                return None
            names.add(follows.argval)
    return frozenset(names)


def texts_of(code: CodeType) -> Iterator[str]:
    """Yield the texts among the constants of a code object, nested code included."""
    for one in nested(code):
        yield from (constant for constant in one.co_consts if isinstance(constant, str))


def _is_local(step: dis.Instruction) -> bool:
    """Return whether an instruction's last variable is local or a closure's, and is not `self`."""
    name = step.argval[-1] if isinstance(step.argval, tuple) else step.argval
    return step.opname.startswith(("LOAD_FAST", "LOAD_DEREF")) and name != "self"


Import = tuple[int, str, tuple[str, ...]]
"""The level, the module, and the imported names."""


@lru_cache(_KEPT)
def imported(code: CodeType) -> tuple[Import, ...]:
    """Return each import in a code object."""
    found = list[Import]()
    for one in nested(code):
        before: list[Any] = [None, None]
        for instruction in dis.get_instructions(one):
            if instruction.opname == "IMPORT_NAME":
                level, names = before[-2:]
                found.append((level or 0, instruction.argval, tuple(names or ())))
            before.append(instruction.argval)
    return tuple(found)


def _instructions(code: CodeType) -> Iterator[dis.Instruction]:
    """Yield the instructions that affect behaviour, without the metadata of a class body."""
    held: dis.Instruction | None = None
    for one in dis.get_instructions(code):
        if one.opname in _SILENT:
            continue
        if one.opname == "STORE_NAME" and one.argval in _NOTES and held is not None:
            held = None
            continue
        if held is not None:
            yield held
        held = one
    if held is not None:
        yield held


def _argument(one: dis.Instruction, ordinal: Any) -> str:
    if one.opcode in dis.hasconst:
        return constant_text(one.argval)
    if one.opcode in dis.hasjrel or one.opcode in dis.hasjabs:
        return f"to {ordinal(one.argval)}"
    named = (*dis.hasname, *dis.haslocal, *dis.hasfree, *dis.hascompare)
    return str(one.argval if one.opcode in named else one.arg)
