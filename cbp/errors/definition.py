"""What an author got wrong in a document or a declaration; found before anything runs.

Guaranteed: each mistake says where it stands, what came and what was expected.
Absent on purpose: the rules themselves; they stand with what they check.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cbp.errors.base import CbpError

__all__ = [
    "ChangeRefusedError",
    "CodeDriftedError",
    "DataflowInvalidError",
    "DefinitionError",
    "Mistake",
]


@dataclass(frozen=True, slots=True)
class Mistake:
    """One thing that is wrong with a definition.

    Attributes:
        code: Stable snake_case name of the rule that was broken.
        where: Path inside the document, such as `stages.count.inputs.links`.
        message: What came, what was expected, and what to do instead.
        place: `file.py:12` of the author's code, or `""` where none applies.
    """

    code: str
    where: str
    message: str
    place: str = ""


class DefinitionError(CbpError):
    """A definition is wrong; carries the one mistake that was found."""

    code = "definition_invalid"

    def __init__(self, mistake: Mistake) -> None:
        at = f" ({mistake.place})" if mistake.place else ""
        super().__init__(
            f"{mistake.where}: {mistake.message}{at}",
            rule=mistake.code,
            where=mistake.where,
            place=mistake.place,
        )
        self.mistake = mistake


class DataflowInvalidError(CbpError):
    """A dataflow has mistakes; lists every one of them, each with its place."""

    code = "dataflow_invalid"

    def __init__(self, dataflow: str, mistakes: Sequence[Mistake]) -> None:
        lines = "; ".join(f"{m.where}: {m.message}" for m in mistakes)
        super().__init__(
            f"dataflow {dataflow!r} has {len(mistakes)} mistake(s): {lines}",
            dataflow=dataflow,
            mistakes=[
                {"code": m.code, "where": m.where, "message": m.message, "place": m.place}
                for m in mistakes
            ],
        )
        self.mistakes = tuple(mistakes)


class ChangeRefusedError(DataflowInvalidError):
    """A new version would lose records, or make them mean something else; nothing changed."""

    code = "change_refused"

    def __init__(self, dataflow: str, mistakes: Sequence[Mistake]) -> None:
        super().__init__(dataflow, mistakes)
        lines = "; ".join(f"{m.where}: {m.message}" for m in mistakes)
        self.message = f"the new version of {dataflow!r} is refused: {lines}"
        self.args = (self.message,)


class CodeDriftedError(DataflowInvalidError):
    """What is installed has other tables, keys or inputs than what was registered."""

    code = "code_drifted"

    def __init__(self, dataflow: str, version: int, mistakes: Sequence[Mistake]) -> None:
        super().__init__(dataflow, mistakes)
        lines = "; ".join(f"{m.where}: {m.message}" for m in mistakes)
        self.message = (
            f"what is installed is not what version {version} of {dataflow!r} was registered "
            f"with: {lines}; register its document again (`cbp register FILE --plan` shows what "
            "that does), or install what there was"
        )
        self.args = (self.message,)
