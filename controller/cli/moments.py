"""Options that choose the snapshot to read; the same for every command."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

__all__ = ["At", "Epoch", "Stage", "moment"]

_DAY = "%Y-%m-%d"
_FORMATS = [
    _DAY,
    *(f"{_DAY}{sep}%H:%M:%S{part}" for sep in "T " for part in ("", ".%f", "%z", ".%f%z")),
]

Epoch = Annotated[
    int | None, typer.Option(min=0, help="The first that shows this epoch.", show_default=False)
]
Stage = Annotated[
    str | None,
    typer.Option(help="Stage that --epoch refers to; by default every stage.", show_default=False),
]
At = Annotated[
    datetime | None,
    typer.Option(
        formats=_FORMATS, help="The newest as of this time (UTC unless told).", show_default=False
    ),
]


def moment(
    epoch: int | None, stage: str | None, at: datetime | None, *, prefix: str = ""
) -> dict[str, int | str | None]:
    """Return the query parameters of these options; `None` for options that are not given."""
    if at is not None and at.tzinfo is None:
        at = at.replace(tzinfo=UTC)
    given = {"epoch": epoch, "stage": stage, "at": None if at is None else at.isoformat()}
    return {f"{prefix}{name}": value for name, value in given.items()}
