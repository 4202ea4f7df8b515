r"""The text of a dataflow document: JSON, or YAML 1.2 without surprises.

    parse_document("name: word_counts\nstages: {}", "application/yaml")

Both formats give plain JSON values. The paths of duplicate pairs are returned beside them, since a
mapping cannot hold such pairs. YAML is read from its events, not by a loader:

- `no`, `on` and `2026-01-01` are strings and `010` is 10, as in YAML 1.2.
- A tag constructs nothing, and deep nesting does not exhaust the stack.
- Each use of an alias counts with its full content.

Guaranteed, whatever the input (tests/controller/registry/test_registry.py, test_documents.py):

- A text of more than `TEXT_BYTES_MAX` bytes is refused.
- The time grows with the size of the text, not with its square (test_yaml_events.py), although
  YAML's parser compares each directive with all others, and checks all open collections for each
  token: both are limited.
- The result has at most `DEPTH_MAX` levels and `VALUES_MAX` values.
- Its strings have at most `TEXT_BYTES_MAX` characters together, and each name has at most
  `NAME_MAX`.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

import yaml

from cbp.errors import DataflowInvalidError, Mistake
from cbp.errors.message_limits import MISTAKES_MAX

TEXT_BYTES_MAX = 1 << 20
VALUES_MAX = 50_000
NAME_MAX = 1000
DEPTH_MAX = 32
DIRECTIVES_MAX = 8
"""Limit of lines that begin with `%`, such as `%TAG`."""

# The line breaks of YAML 1.1, which the parser uses.
_DIRECTIVE = re.compile("(?:\\A\ufeff?|[\n\r\x85\u2028\u2029]\ufeff?)%")
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read_events(text: str) -> Iterator[yaml.Event]:
    """Yield the events of a text, one by one as they are read.

    Raises `yaml.YAMLError`; `DataflowInvalidError` (rule `document_too_large`) if there are more
    directives than `DIRECTIVES_MAX`, or more levels than `DEPTH_MAX`.
    """
    if len(_DIRECTIVE.findall(text)) > DIRECTIVES_MAX:
        message = f"has more than {DIRECTIVES_MAX} lines that begin with '%'"
        _fail("document_too_large", "document", message)
    depth = 0
    for event in yaml.parse(text, Loader=_LOADER):
        if isinstance(event, yaml.CollectionStartEvent):
            if depth >= DEPTH_MAX:
                message = f"is nested deeper than {DEPTH_MAX} levels"
                _fail("document_too_large", event_place(event.start_mark), message)
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        yield event


def event_place(mark: Any) -> str:
    """Return the place of a mark in words: `line 1, column 1`; `document` without a mark."""
    return "document" if mark is None else f"line {mark.line + 1}, column {mark.column + 1}"


_JSON_TYPES = {"application/json"}
_YAML_TYPES = {"application/yaml", "application/x-yaml", "text/yaml", "text/x-yaml"}
_STRING_TAG = "tag:yaml.org,2002:str"

# The core schema of YAML 1.2, chapter 10.3.2.
_NULL = re.compile(r"(?:null|Null|NULL|~|)\Z")
_BOOL = re.compile(r"(?:true|True|TRUE|false|False|FALSE)\Z")
_INT = re.compile(r"[-+]?[0-9]{1,30}\Z")
_BASED = re.compile(r"0o[0-7]{1,30}\Z|0x[0-9a-fA-F]{1,30}\Z")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?\Z")
_SPECIAL = re.compile(r"(?:[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))\Z")


class _Pairs(list[tuple[Any, Any]]):
    """A mapping as it is in the text, including duplicate pairs."""


def parse_document(text: str, content_type: str) -> tuple[Mapping[str, Any], tuple[str, ...]]:
    """Read the text of a dataflow document.

    Args:
        content_type: A media type, parameters allowed; `application/json` or
            `application/yaml` and its older names.

    Returns:
        The document as JSON values, and the paths of duplicate pairs, such as
        `stages.count.inputs.links`; the last one of such pairs counts.

    Raises `DataflowInvalidError`: rule `document_syntax` with line and column,
    `document_too_large`, `document_invalid` or `content_type_unknown`.
    """
    media_type = content_type.partition(";")[0].strip().lower()
    if len(text.encode(errors="surrogatepass")) > TEXT_BYTES_MAX:
        _fail("document_too_large", "document", f"is larger than {TEXT_BYTES_MAX} bytes")
    if media_type in _JSON_TYPES:
        value = _json(text)
    elif media_type in _YAML_TYPES:
        value = _yaml(text)
    else:
        allowed = ", ".join(sorted(_JSON_TYPES | _YAML_TYPES))
        message = f"the content type {media_type!r} is not supported; use one of {allowed}"
        _fail("content_type_unknown", "document", message)
    reader = _Plain()
    document = reader.read(value, ())
    if not isinstance(document, dict):
        kind = "nothing" if document is None else type(document).__name__
        _fail("document_invalid", "document", f"expected a mapping, got {kind}")
    return document, tuple(dict.fromkeys(reader.duplicates))


def _json(text: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_Pairs)
    except json.JSONDecodeError as error:
        _fail("document_syntax", f"line {error.lineno}, column {error.colno}", error.msg)
    except RecursionError:
        _fail("document_too_large", "document", f"is nested deeper than {DEPTH_MAX} levels")
    except ValueError as error:  # an integer of thousands of digits
        _fail("document_invalid", "document", str(error))


def _yaml(text: str) -> Any:
    try:
        return _YamlReader().read(read_events(text))
    except yaml.MarkedYAMLError as error:
        why = error.problem or "is not valid YAML"
        _fail("document_syntax", event_place(error.problem_mark), why)
    except yaml.YAMLError as error:
        _fail("document_syntax", "document", str(error))


@dataclass
class _Open:
    """A collection whose end has not been read yet."""

    value: list[Any]
    anchor: str | None
    keys: list[Any] = field(default_factory=list)


class _YamlReader:
    """Builds values from events on a stack of its own; one document only."""

    def __init__(self) -> None:
        self._stack: list[_Open] = []
        self._anchors: dict[str, Any] = {}
        self._documents: list[Any] = []

    def read(self, events: Iterator[yaml.Event]) -> Any:
        for event in events:
            if isinstance(event, yaml.DocumentStartEvent) and self._documents:
                why = "there is a second document; send only one"
                _fail("document_syntax", event_place(event.start_mark), why)
            elif isinstance(event, yaml.CollectionStartEvent):
                self._open(event)
            elif isinstance(event, yaml.CollectionEndEvent):
                self._close(event)
            elif isinstance(event, yaml.ScalarEvent):
                self._scalar(event)
            elif isinstance(event, yaml.AliasEvent):
                self._alias(event)
        return self._documents[0] if self._documents else None

    def _open(self, event: yaml.CollectionStartEvent) -> None:
        self._refuse_tag(event, implied=("tag:yaml.org,2002:map", "tag:yaml.org,2002:seq"))
        value: list[Any] = _Pairs() if isinstance(event, yaml.MappingStartEvent) else []
        self._stack.append(_Open(value, event.anchor))

    def _close(self, event: yaml.CollectionEndEvent) -> None:
        done = self._stack.pop()
        if done.anchor is not None:
            self._anchors[done.anchor] = done.value
        self._add(event, done.value)

    def _scalar(self, event: yaml.ScalarEvent) -> None:
        self._refuse_tag(event, implied=(_STRING_TAG,))
        text = event.tag == _STRING_TAG or not event.implicit[0]
        # Where a name is expected, `null:` and `1:` are names, as in JSON.
        value = event.value if text or (event.value and self._at_name()) else _core_value(event)
        if event.anchor is not None:
            self._anchors[event.anchor] = value
        self._add(event, value)

    def _at_name(self) -> bool:
        """Return whether the next value of the open collection is a name."""
        top = self._stack[-1] if self._stack else None
        return top is not None and isinstance(top.value, _Pairs) and not top.keys

    def _alias(self, event: yaml.AliasEvent) -> None:
        if event.anchor not in self._anchors:
            why = f"there is no anchor named {event.anchor!r}"
            _fail("document_syntax", event_place(event.start_mark), why)
        self._add(event, self._anchors[event.anchor])

    def _add(self, event: yaml.Event, value: Any) -> None:
        if not self._stack:
            self._documents.append(value)
            return
        top = self._stack[-1]
        if not isinstance(top.value, _Pairs):
            top.value.append(value)
        elif top.keys:
            top.value.append((top.keys.pop(), value))
        elif isinstance(value, list):
            why = "a name must be text, not a list or a mapping"
            _fail("document_syntax", event_place(event.start_mark), why)
        else:
            top.keys.append(value)

    def _refuse_tag(self, event: Any, *, implied: tuple[str, ...]) -> None:
        if event.tag is not None and event.tag not in (*implied, "!"):
            message = f"the tag {event.tag!r} is not allowed; remove it"
            _fail("document_syntax", event_place(event.start_mark), message)


def is_plain_text(text: str) -> bool:
    """Return whether a plain scalar with this text is read as text, and not as a number."""
    patterns = (_NULL, _BOOL, _INT, _BASED, _FLOAT, _SPECIAL)
    return not any(pattern.match(text) for pattern in patterns)


def _core_value(event: yaml.ScalarEvent) -> Any:
    """Return the value of a plain scalar in the core schema of YAML 1.2."""
    text: str = event.value
    makers: tuple[tuple[re.Pattern[str], Callable[[str], Any]], ...] = (
        (_NULL, lambda _: None),
        (_BOOL, lambda word: word.lower() == "true"),
        (_INT, int),
        (_BASED, lambda digits: int(digits, 0)),
        (_FLOAT, float),
        (_SPECIAL, lambda word: float(word.replace(".", "", 1))),
    )
    return next((make(text) for pattern, make in makers if pattern.match(text)), text)


class _Plain:
    """Turns pairs into mappings; collects duplicates; refuses values that JSON cannot hold.

    The uses of an alias share one object until then. Here each use is read and counted separately.
    """

    def __init__(self) -> None:
        self.duplicates: list[str] = []
        self._values = self._characters = 0

    def read(self, value: Any, path: tuple[str, ...]) -> Any:
        self._values += 1
        if len(path) > DEPTH_MAX or self._values > VALUES_MAX:
            self._too_large(path, f"exceeds {DEPTH_MAX} levels or {VALUES_MAX} values")
        if isinstance(value, _Pairs):
            return self._mapping(value, path)
        if isinstance(value, list):
            return [self.read(item, (*path, str(i))) for i, item in enumerate(value)]
        self._check_scalar(value, path)
        return value

    def _mapping(self, pairs: _Pairs, path: tuple[str, ...]) -> dict[Any, Any]:
        made: dict[Any, Any] = {}
        for key, item in pairs:
            self._check_scalar(key, path)
            at = (*path, str(key))
            if len(at[-1]) > NAME_MAX:
                self._too_large(path, f"has a name of more than {NAME_MAX} characters")
            if key in made and len(self.duplicates) <= MISTAKES_MAX:
                self.duplicates.append(".".join(at))
            made[key] = self.read(item, at)
        return made

    def _check_scalar(self, value: Any, path: tuple[str, ...]) -> None:
        where = ".".join(path) or "document"
        if isinstance(value, float) and not math.isfinite(value):
            _fail("document_invalid", where, f"{value} is not a number in JSON")
        if isinstance(value, str):
            self._characters += len(value)
            if self._characters > TEXT_BYTES_MAX:
                message = f"has more than {TEXT_BYTES_MAX} characters once its aliases are replaced"
                self._too_large(path, message)
            try:
                value.encode()
            except UnicodeEncodeError:
                why = "the text has half of a surrogate pair, which is not a character"
                _fail("document_invalid", where, why)

    def _too_large(self, path: tuple[str, ...], message: str) -> NoReturn:
        _fail("document_too_large", ".".join(path[:1])[:NAME_MAX] or "document", message)


def _fail(code: str, where: str, message: str) -> NoReturn:
    raise DataflowInvalidError("", [Mistake(code, where, message)])
