"""Errors in documents, declarations and registered code, found before the author's code runs.

Guaranteed: each mistake says where it is, what was given and what was expected. An error about one
document reports at most `MISTAKES_MAX` mistakes, each shortened
(tests/controller/registry/test_documents.py).
Absent on purpose: the rules themselves; each is in the module of the values that it checks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cbp.errors.base import CbpError
from cbp.errors.counts import format_count
from cbp.errors.message_limits import MISTAKES_MAX, shortened

_WHERE_MAX, _NAME_MAX = 300, 100


@dataclass(frozen=True, slots=True)
class Mistake:
    """One mistake in a definition.

    Attributes:
        code: Stable snake_case name of the broken rule.
        where: Path inside the document, such as `stages.count.inputs.links`.
        message: What was given, what was expected, and what to do instead.
        place: `file.py:12` of the author's code, or `""` if there is none.
        line, column: Its place in the document's text, from 1; 0 if unknown.
    """

    code: str
    where: str
    message: str
    place: str = ""
    line: int = 0
    column: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return the mistake as a JSON mapping; the middle of very long texts is cut out."""
        mapping: dict[str, Any] = {
            "code": self.code,
            "where": shortened(self.where, _WHERE_MAX),
            "message": shortened(self.message),
            "place": self.place,
        }
        if self.line:
            mapping |= {"line": self.line, "column": self.column}
        return mapping


class DefinitionError(CbpError, code="definition_invalid"):
    """A definition is wrong; carries its mistakes, the first one as `mistake`."""

    def __init__(self, mistake: Mistake, *more: Mistake) -> None:
        self.mistake, self.mistakes = mistake, (mistake, *more)
        described = [one.to_json() for one in self.mistakes[:MISTAKES_MAX]]
        super().__init__(
            "; ".join(map(_line, described)),
            rule=mistake.code,
            where=described[0]["where"],
            place=mistake.place,
            **({"mistakes": described} if more else {}),
        )


def _line(described: Mapping[str, Any]) -> str:
    at = f" ({described['place']})" if described["place"] else ""
    return f"{described['where']}: {described['message']}{at}"


class DataflowInvalidError(CbpError, code="dataflow_invalid"):
    """A dataflow has mistakes; lists the first `MISTAKES_MAX`, each with its place."""

    def __init__(
        self, dataflow: str, mistakes: Sequence[Mistake], *, said: str = "", advice: str = ""
    ) -> None:
        name, self.mistakes = shortened(dataflow, _NAME_MAX), tuple(mistakes)
        descriptions = [mistake.to_json() for mistake in self.mistakes[:MISTAKES_MAX]]
        count, more = format_count(len(descriptions), "mistake"), {}
        if len(self.mistakes) > MISTAKES_MAX:
            count, more = f"more than {MISTAKES_MAX} mistakes", {"mistakes_max": MISTAKES_MAX}
        said = said or f"dataflow {name!r} has {count}"
        lines = "; ".join(map(_line, descriptions))
        super().__init__(f"{said}: {lines}{advice}", dataflow=name, mistakes=descriptions, **more)

    def add_places(self, place_of: Callable[[Mistake], tuple[int, int]]) -> None:
        """Add line and column, counted from 1, to every reported mistake."""
        places = map(place_of, self.mistakes)
        self.mistakes = tuple(
            replace(mistake, line=line, column=column)
            for mistake, (line, column) in zip(self.mistakes, places, strict=True)
        )
        shown = [mistake.to_json() for mistake in self.mistakes[:MISTAKES_MAX]]
        self.details = {**self.details, "mistakes": shown}


class ChangeRefusedError(DataflowInvalidError, code="change_refused"):
    """A new version would lose records or change their meaning; nothing was changed."""

    def __init__(self, dataflow: str, mistakes: Sequence[Mistake]) -> None:
        super().__init__(dataflow, mistakes, said=f"the new version of {dataflow!r} is refused")


class CodeNotLoadedError(CbpError, code="code_not_loaded"):
    """A worker has loaded other code than the service; the code was not called."""

    def __init__(
        self, module: str, name: str, sent: str, loaded: str, difference: str = ""
    ) -> None:
        message = (
            f"a worker and the service have loaded different code of {module}.{name} "
            f"({difference or 'its code'}). Either the file was changed after the service started, "
            "or it differs on the worker's machine. Restore the file, or restart the service and "
            "register the document again"
        )
        super().__init__(message, module=module, name=name, sent=sent, loaded=loaded)


class CodeDriftedError(DataflowInvalidError, code="code_drifted"):
    """The loaded translators have other code, tables, keys or inputs than the registered ones."""

    def __init__(self, dataflow: str, version: int, mistakes: Sequence[Mistake]) -> None:
        super().__init__(
            dataflow,
            mistakes,
            said=f"the loaded code differs from version {version} of {dataflow!r}",
            advice=". Register the document again (`cbp register FILE --plan` shows the effects), "
            "or restore the old code: undo the change of the file or reinstall the old package, "
            "then restart the service",
        )
