"""Collects what a task sets aside: never more than the stage may, since it is in memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from cbp.engine.task.reports import SetAside
from cbp.errors import SetAsideFullError
from cbp.model.dataflow.stage import TranslatorSpec

__all__ = ["BYTES_MAX", "SetAsideReports"]

BYTES_MAX = 64 << 20
"""Characters of JSON that a task sets aside at most in one run."""


@dataclass
class SetAsideReports:
    """The records that one task sets aside.

    Attributes:
        most: How many there may be. One more is reported, by which the driver knows.
        report: Takes each report.
    """

    stage: str
    spec: TranslatorSpec
    most: int
    report: Callable[[SetAside], None]
    _records: int = field(init=False, default=0)
    _characters: int = field(init=False, default=0)

    @property
    def room(self) -> int:
        """How many more are reported; further ones are left out, since the run fails anyway."""
        return max(0, self.most + 1 - self._records)

    def add(self, one: SetAside) -> None:
        """Set one record aside.

        Raises:
            SetAsideFullError: Its task would set too many bytes aside.
        """
        if not self.room:
            return
        self._records += 1
        self._characters += len(one.record)
        if self._characters > BYTES_MAX:
            raise SetAsideFullError(
                stage=self.stage,
                function=f"{self.spec.name}.translate",
                place=self.spec.place,
                cause=f"more than {BYTES_MAX >> 20} MiB would be set aside in one run",
            )
        self.report(one)
