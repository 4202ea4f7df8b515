"""Facts about a request, for the audit log: its id, its caller, its subject."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from starlette.types import Scope as AsgiScope

from controller.access.identity import Identity

_KEY = "cbp.exchange"


@dataclass(slots=True, kw_only=True)
class Exchange:
    """One request and its answer, for the audit log.

    Attributes:
        id: Also in the answer's header `X-Request-Id` and in each line of the log.
        caller: `None` if it was not recognised, or the route is public.
        action: The operationId; `""` if no route matches.
        changes: Whether the request changes something, if it succeeds. A route with a dry run sets
            this itself, since a client can add `dry_run` to any address.
        dataflow, target, reason: The subject of the request, where the path does not name it.
        passing: Whether the answer changes with time, so that it is not kept.
    """

    id: str
    caller: Identity | None = None
    action: str = ""
    changes: bool = False
    dataflow: str = ""
    target: dict[str, str] = field(default_factory=dict)
    reason: str = ""
    passing: bool = False

    def put(self, scope: AsgiScope) -> None:
        """Attach this to the request."""
        scope[_KEY] = self


def exchange_of(scope: Any) -> Exchange:
    """Return the facts about a request; they exist once the guard has seen it."""
    exchange: Exchange = scope[_KEY]
    return exchange
