"""The fingerprint of author's code: computed from loaded objects, compared with a version's.

`fingerprint` covers an object (a translator's class or a function) and, transitively, everything
that it needs from its own package: functions, classes and their bases, constants, defaults,
closures, and modules that a function imports when it runs. The package is the first part of the
module's name. The packages of a class's bases count too, and so do their siblings: modules and
packages in the same folder, or in the same distribution if installed
(`cbp.model.author.sibling_packages`).

    Count.translate -> clean (shop/text.py) -> PATTERN (shop/text.py)
                    -> json.loads: only the name, as for everything in other packages

The values in a module are read when the module is first seen, right after its import. So values
that a run stores there later do not change the fingerprint. Not covered: the standard library,
other packages, `cbp` itself, and objects that are found by a name made at run time (`getattr`,
`importlib`).

The description of a version has the fingerprint (`Code`) of its code:

    3:3.11:1f0c9a2b77e4d310      scheme : interpreter : digest of all parts
    parts: {"shop.count.Count": "9a31c0de", "shop.text.clean": "0be41f22", ...}

Fingerprints of two schemes cannot be compared, so no difference is reported. Fingerprints of one
scheme are equal if their digests are equal. If the digests differ, the parts show what differs,
unless the interpreters differ too: each compiles the same source to different bytecode.

Invariants (tests/cbp/model/author/test_code_fingerprint.py): equal in every process of one
interpreter; comments, docstrings and line numbers do not count; a `Code` equals itself after
`to_json` and `from_json`.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import hashlib
import importlib
import importlib.util
import re
import sys
import threading
import weakref
from collections import deque
from collections.abc import Iterator, Mapping
from datetime import date, time, timedelta, tzinfo
from decimal import Decimal
from fractions import Fraction
from pathlib import PurePath
from types import (
    BuiltinFunctionType,
    FunctionType,
    GetSetDescriptorType,
    MappingProxyType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
)
from typing import Any
from uuid import UUID

from cbp.model.author.bytecode import Import, code_text, constant_text, imported, names_of
from cbp.model.author.sibling_packages import Siblings, root_of

_OURS = "cbp"
_FOREIGN = frozenset({*sys.stdlib_module_names, _OURS, "builtins"}) - {"__main__"}
_DEPTH_MAX = 40
_ITEMS_MAX = 100_000
_PLAIN = (type(None), bool, int, float, complex, str, bytes, type(...), type(NotImplemented))
_STANDARD = (Decimal, Fraction, date, time, timedelta, tzinfo, PurePath, UUID, range, slice)
_Cached = type(functools.lru_cache(len))
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_UNCOUNTED = frozenset(
    [
        "__abstractmethods__",
        "__annotate__",
        "__annotate_func__",
        "__annotations_cache__",
        "__dataclass_fields__",
        "__dataclass_params__",
        "__dict__",
        "__doc__",
        "__firstlineno__",
        "__module__",
        "__slotnames__",
        "__static_attributes__",
        "__weakref__",
        "_abc_impl",
    ]
)
"""Attributes of a class that do not affect its behaviour, or that Python derives or adds later.

For example, `copyreg` adds `__slotnames__` when an instance is first copied or pickled.
"""

_PLACES = frozenset({"place", "code"})
"""Fields of our own dataclasses that are left out: source places and fingerprints."""

_lock = threading.RLock()
_authors: set[str] = set()
_seen: set[str] = set()
_known: weakref.WeakKeyDictionary[Any, _Fingerprint] = weakref.WeakKeyDictionary()
_values: dict[str, tuple[ModuleType, Mapping[str, _Value]]] = {}

SCHEME = "3"
"""The current scheme of fingerprints."""

LATER: Mapping[str, bool] = {"cbp.later": True}
"""Metadata of a dataclass field that a later release added to a declaration.

While the field has its default, it is left out of fingerprints, so that they equal the fingerprints
of earlier releases.
"""

_OPTIMISED = "-O" if sys.flags.optimize else ""
_INTERPRETER = f"{sys.version_info.major}.{sys.version_info.minor}{_OPTIMISED}"

SHOWN_MAX = 5
"""Maximum number of parts that a message names."""


@dataclasses.dataclass(frozen=True, slots=True)
class Code:
    """The fingerprint of some code; see the module header.

    Attributes:
        text: `""` if unknown. A text without a scheme is from an earlier release.
        parts: Maps the name of each function, class or constant to its own digest. Not shipped
            to workers.
    """

    text: str = ""
    parts: Mapping[str, str] = dataclasses.field(default_factory=dict, compare=False)

    @classmethod
    def of(cls, parts: Mapping[str, str]) -> Code:
        """Return the code of these parts, in this interpreter."""
        lines = "\n".join(f"{name} {digest}" for name, digest in sorted(parts.items()))
        made = hashlib.sha256(lines.encode(errors="surrogatepass")).hexdigest()[:16]
        return cls(f"{SCHEME}:{_INTERPRETER}:{made}", parts)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle only the text."""
        return Code, (self.text,)

    def __str__(self) -> str:
        return self.text

    def __bool__(self) -> bool:
        """Return whether it has the current scheme, so that it can be compared with loaded code."""
        return self.text.startswith(f"{SCHEME}:")

    def __add__(self, other: Code) -> Code:
        return Code.of({**self.parts, **other.parts})

    @property
    def interpreter(self) -> str:
        """The version of Python, such as `3.11`; with `-O` if it leaves out assertions."""
        return self.text.split(":")[1] if self else ""

    def differences(self, now: Code) -> Iterator[str]:
        """Yield the differences from the loaded code, in words; nothing if there are none."""
        if not self or not now or self.text.split(":")[2] == now.text.split(":")[2]:
            return
        if self.interpreter != now.interpreter:
            was, is_ = (f"Python {one.interpreter}" for one in (self, now))
            compiled = f"compiled by another interpreter ({was} -> {is_})"
            yield f"its code: {compiled}, so it cannot be compared"
            return
        names = self.parts.keys() | now.parts.keys()
        others = sorted(name for name in names if self.parts.get(name) != now.parts.get(name))
        shown = ", ".join(others[:SHOWN_MAX])
        more = f" and {len(others) - SHOWN_MAX} more" if len(others) > SHOWN_MAX else ""
        yield f"its code: {shown}{more}" if others else "its code"

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values; `from_json` is the inverse."""
        return {"text": self.text, "parts": dict(self.parts)}

    @classmethod
    def from_json(cls, value: Any) -> Code:
        """Read the output of `to_json`, or the text alone, as earlier releases wrote it."""
        if isinstance(value, str):
            return cls(value)
        return cls(value["text"], value["parts"])


UNKNOWN_CODE = Code()


@dataclasses.dataclass(frozen=True, slots=True)
class _Fingerprint:
    code: Code
    modules: frozenset[str]


@dataclasses.dataclass(frozen=True, slots=True)
class _Value:
    """A value as text, and the author's functions and classes in it."""

    text: str
    holds: tuple[Any, ...]


def fingerprint(root: Any) -> Code:
    """Return the fingerprint of a class or function, computed at the first call and cached."""
    return _fingerprinted(root).code


def held_by(value: Any, root: type) -> Code:
    """Return the fingerprint of a class and of its author's functions and classes in a value."""
    with _lock:
        return _Walk(root, value).walk().code


def is_authors(thing: Any) -> bool:
    """Return whether a class or function is in a package that was fingerprinted before."""
    return _package(thing) in _authors


def modules_of(root: Any) -> frozenset[str]:
    """Return the modules that contain the code of a class or function."""
    return _fingerprinted(root).modules


def modules_seen() -> frozenset[str]:
    """Return the modules that contain the code of any class or function fingerprinted so far."""
    return frozenset(_seen)


def _fingerprinted(root: Any) -> _Fingerprint:
    with _lock:
        try:
            fingerprint_ = _known.get(root)
        except TypeError:  # no weak reference to it, or no hash
            return _Walk(root).walk()
        if fingerprint_ is None:
            fingerprint_ = _Walk(root).walk()
            _known[root] = fingerprint_
        return fingerprint_


class _Walk:
    """Walks from one object to everything that it needs from its own package."""

    def __init__(self, root: Any, value: Any = None) -> None:
        bases = root.__mro__ if isinstance(root, type) else (getattr(root, "__func__", root),)
        named = frozenset(map(_package, bases)) - _FOREIGN
        self._own = Siblings(named, _FOREIGN)
        self._roots = sorted(filter(None, map(root_of, named)), key=len, reverse=True)
        _authors.update(named)
        self._parts: dict[str, list[str]] = {}
        self._modules: set[str] = set()
        self._seen: dict[int, Any] = {}  # keeps objects alive, so that ids stay unique
        self._todo = [root, *self._value(value).holds]

    def walk(self) -> _Fingerprint:
        while self._todo:
            thing = self._todo.pop()
            if id(thing) in self._seen:
                continue
            self._seen[id(thing)] = thing
            if isinstance(thing, type):
                self._class(thing)
            elif isinstance(thing, FunctionType):
                self._function(thing)
            else:
                self._add(_name(thing), self._value(thing))
        parts = {name: _digest("\n".join(sorted(all_))) for name, all_ in self._parts.items()}
        _seen.update(self._modules)
        return _Fingerprint(Code.of(parts), frozenset(self._modules))

    def _class(self, class_: type) -> None:
        name = _name(class_)
        self._modules.add(class_.__module__)
        bases = ", ".join(_name(base) for base in class_.__bases__)
        self._part(name, f"class ({bases})")
        types = (*class_.__bases__, type(class_))
        self._todo += [one for one in types if _package(one) in self._own]
        for attribute, value in sorted(vars(class_).items()):
            if attribute == "__annotations__":
                self._part(name, f"annotations {_annotations(value)}")
            elif attribute not in _UNCOUNTED:
                described = self._value(value)
                self._todo += described.holds
                self._part(name, f"{attribute} = {described.text}")

    def _function(self, function: FunctionType) -> None:
        name = _name(function)
        given = self._value((function.__defaults__, function.__kwdefaults__))
        closed = self._value([_content(cell) for cell in function.__closure__ or ()])
        self._todo += (*given.holds, *closed.holds)
        if (wrapped := getattr(function, "__wrapped__", None)) is not None:
            self._todo.append(wrapped)
        if function.__globals__.get("__name__", "").partition(".")[0] not in self._own:
            self._part(name, f"wrapped by {closed.text}")  # by a decorator of another package
            return
        code = function.__code__
        self._part(name, f"{code_text(code)} {given.text} {closed.text}")
        globals_, attributes = names_of(code)
        module = function.__globals__["__name__"]
        self._modules.add(module)
        for each in sorted(globals_ & function.__globals__.keys()):
            self._reference(module, each, function.__globals__[each], attributes)
        for one in imported(code):
            self._imports(function, one, attributes)

    def _reference(self, module: str, name: str, value: Any, attributes: frozenset[str]) -> None:
        if isinstance(value, ModuleType):
            self._module(value, attributes)
        elif isinstance(value, type | FunctionType | MethodType | BuiltinFunctionType):
            self._add(f"{module}.{name}", self._value(value))
        else:
            known = self._values_of(module).get(name)
            self._add(f"{module}.{name}", known or self._value(value))

    def _module(self, module: ModuleType, attributes: frozenset[str]) -> None:
        """Visit the objects of a module that have any of these names."""
        if module.__name__.partition(".")[0] not in self._own or id(module) in self._seen:
            return
        self._seen[id(module)] = module  # ends a cycle of modules
        for name in sorted(attributes & vars(module).keys()):
            self._reference(module.__name__, name, vars(module)[name], attributes)
        self._modules.add(module.__name__)
        del self._seen[id(module)]  # another function may use other names of it

    def _imports(self, function: FunctionType, one: Import, attributes: frozenset[str]) -> None:
        level, name, names = one
        package = function.__globals__.get("__package__") or ""
        try:
            full = importlib.util.resolve_name("." * level + name, package)
            if full.partition(".")[0] not in self._own:
                return
            module = importlib.import_module(full)
            for each in names:
                if not hasattr(module, each) and each != "*":
                    importlib.import_module(f"{full}.{each}")
        except Exception as error:  # an author's module may raise anything when it is imported
            self._part(name, f"cannot be imported: {type(error).__name__}")
            return
        self._module(sys.modules[full.partition(".")[0]], attributes | {*full.split(".")})
        self._module(module, attributes | frozenset(names))

    def _values_of(self, module: str) -> Mapping[str, _Value]:
        loaded = sys.modules.get(module)
        if loaded is None:
            return {}
        known = _values.get(module)
        if known is None or known[0] is not loaded:
            code = type | FunctionType | ModuleType | MethodType | BuiltinFunctionType
            values = {
                name: self._value(value)
                for name, value in list(vars(loaded).items())
                if not isinstance(value, code) and not name.startswith("__")
            }
            known = _values[module] = loaded, values
        return known[1]

    def _value(self, value: Any) -> _Value:
        holds: list[Any] = []
        text = _Reader(self._own, holds).text(value, 0)
        for root in self._roots:
            text = text.replace(root, "<root>")  # for example in `Path(__file__).parent`
        return _Value(text, tuple(holds))

    def _add(self, name: str, value: _Value) -> None:
        self._part(name, value.text)
        self._todo += value.holds

    def _part(self, name: str, text: str) -> None:
        self._parts.setdefault(name, []).append(_digest(text))


class _Reader:
    """Converts one value to text; collects the author's functions and classes in it."""

    def __init__(self, own: Siblings, holds: list[Any]) -> None:
        self._own, self._holds = own, holds
        self._inside: set[int] = set()
        self._items = 0

    def text(self, value: Any, depth: int) -> str:
        self._items += 1
        if isinstance(value, _PLAIN) and not isinstance(value, enum.Enum):
            return constant_text(value)
        if depth > _DEPTH_MAX or self._items > _ITEMS_MAX or id(value) in self._inside:
            return "..."
        self._inside.add(id(value))
        try:
            return self._compound(value, depth + 1)
        finally:
            self._inside.discard(id(value))

    def _compound(self, value: Any, depth: int) -> str:
        kind = type(value).__name__
        if isinstance(value, enum.Enum):
            self._hold(type(value))
            return f"{_name(type(value))} {value.name} {self.text(value.value, depth)}"
        if isinstance(value, type | FunctionType | BuiltinFunctionType | ModuleType):
            self._hold(value)
            return f"{kind} {_name(value)}"
        if isinstance(value, dict | MappingProxyType | set | frozenset | list | tuple | deque):
            self._hold(type(value))
        if isinstance(value, dict | MappingProxyType):
            pairs = [f"{self.text(k, depth)}: {self.text(v, depth)}" for k, v in value.items()]
            return f"{kind} {{{', '.join(pairs)}}}"
        if isinstance(value, set | frozenset):
            return f"{kind} {{{', '.join(sorted(self.text(each, depth) for each in value))}}}"
        if isinstance(value, list | tuple | deque):
            return f"{kind} [{', '.join(self.text(each, depth) for each in value)}]"
        if isinstance(value, _STANDARD):
            return f"{kind} {value!r}"
        if isinstance(value, re.Pattern):
            return f"pattern {value.pattern!r} {value.flags}"
        return self._object(value, depth)

    def _object(self, value: Any, depth: int) -> str:
        made = tuple(_made_of(value))
        if made:
            return f"{type(value).__name__} ({', '.join(self.text(each, depth) for each in made)})"
        if isinstance(value, MemberDescriptorType | GetSetDescriptorType):
            return "slot"
        class_ = type(value)
        if class_.__module__.partition(".")[0] == _OURS and dataclasses.is_dataclass(class_):
            names = [f.name for f in dataclasses.fields(class_) if _counts(f, value)]
            return self._attributes(value, names, depth)
        if _package(class_) in self._own:
            self._hold(class_)
            slots = (n for c in class_.__mro__ for n in getattr(c, "__slots__", ()))
            return self._attributes(value, [*getattr(value, "__dict__", ()), *slots], depth)
        return f"a {_name(class_)}{_buffer(value)}"

    def _attributes(self, value: Any, names: list[str], depth: int) -> str:
        pairs = [
            f"{name}={self.text(getattr(value, name), depth)}"
            for name in sorted(set(names))
            if hasattr(value, name)
        ]
        return f"{_name(type(value))}({', '.join(pairs)})"

    def _hold(self, thing: Any) -> None:
        wrapped = isinstance(thing, FunctionType) and hasattr(thing, "__wrapped__")
        if isinstance(thing, type | FunctionType) and (_package(thing) in self._own or wrapped):
            self._holds.append(thing)


def _counts(field: dataclasses.Field[Any], value: Any) -> bool:
    if field.metadata == LATER and getattr(value, field.name) == field.default:
        return False
    return field.name not in _PLACES


def _made_of(value: Any) -> Iterator[Any]:
    if isinstance(value, MethodType):
        yield from (value.__func__, value.__self__)
    elif isinstance(value, staticmethod | classmethod):
        yield value.__func__
    elif isinstance(value, property):
        yield from (value.fget, value.fset, value.fdel)
    elif isinstance(value, functools.cached_property):
        yield value.func
    elif isinstance(value, functools.partial | functools.partialmethod):
        yield from (value.func, value.args, value.keywords)
    elif isinstance(value, _Cached):
        yield value.__wrapped__


def _buffer(value: Any) -> str:
    """Return the digest of a value with a buffer, such as an array of numbers; else `""`."""
    try:
        with memoryview(value) as view:
            return f" {view.format} {view.shape} {hashlib.sha256(view.tobytes()).hexdigest()}"
    except (TypeError, ValueError, BufferError):
        return ""


def _annotations(value: Any) -> str:
    if not isinstance(value, Mapping):
        return ""
    texts = {name: each if isinstance(each, str) else repr(each) for name, each in value.items()}
    return _ADDRESS.sub("", repr(texts))


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # empty: the enclosing function has not assigned it yet
        return None


def _package(thing: Any) -> str:
    module = getattr(thing, "__module__", None) or ""
    return module.partition(".")[0] if isinstance(module, str) else ""


def _name(thing: Any) -> str:
    if isinstance(thing, ModuleType):
        return thing.__name__
    module = getattr(thing, "__module__", None) or ""
    name = getattr(thing, "__qualname__", None) or getattr(thing, "__name__", None)
    return f"{module}.{name or type(thing).__qualname__}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:16]
