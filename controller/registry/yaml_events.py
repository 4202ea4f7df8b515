"""The events of a YAML text, within the limits that keep the parser's time linear.

Guaranteed, whatever the text (tests/controller/registry/test_yaml_events.py): what reads these
events to their end, or to the error, takes time that grows with the size of the text, not with its
square. The parser compares each directive with all the others, and looks at all open collections
for each of its tokens.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import yaml

from cbp.errors import DataflowInvalidError, Mistake

DEPTH_MAX = 32
DIRECTIVES_MAX = 8
"""Limit of lines that begin with `%`, such as `%TAG`."""

# The line breaks of YAML 1.1, which are those of the parser.
_DIRECTIVE = re.compile("(?:\\A\ufeff?|[\n\r\x85\u2028\u2029]\ufeff?)%")
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read_events(text: str) -> Iterator[yaml.Event]:
    """Yield the events of a text, one by one as they are read.

    Raises:
        DataflowInvalidError: Rule `document_too_large`, if there are more directives than
            `DIRECTIVES_MAX`, or more levels than `DEPTH_MAX`.
        yaml.YAMLError: If the text is not YAML.
    """
    if len(_DIRECTIVE.findall(text)) > DIRECTIVES_MAX:
        message = f"has more than {DIRECTIVES_MAX} lines that begin with '%'"
        raise _too_large("document", message)
    depth = 0
    for event in yaml.parse(text, Loader=_LOADER):
        if isinstance(event, yaml.CollectionStartEvent):
            if depth >= DEPTH_MAX:
                message = f"is nested deeper than {DEPTH_MAX} levels"
                raise _too_large(event_place(event.start_mark), message)
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        yield event


def event_place(mark: Any) -> str:
    """Return a mark as people count, `line 1, column 1`; `document` if there is none."""
    return "document" if mark is None else f"line {mark.line + 1}, column {mark.column + 1}"


def _too_large(where: str, message: str) -> DataflowInvalidError:
    return DataflowInvalidError("", [Mistake("document_too_large", where, message)])
