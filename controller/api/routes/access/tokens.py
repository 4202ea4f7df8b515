"""Named tokens: list, make, rotate, revoke. A secret is in one answer only."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Literal

from fastapi import Path, Query
from pydantic import Field

from controller.access.access import Access
from controller.access.secret_text import NewToken
from controller.api.answers.schemas import Model, Page, PageQuery
from controller.api.routing.cursors import CursorsDep
from controller.api.routing.dependencies import AccessDep, CallerDep, ExchangeDep
from controller.api.routing.router_factory import Scope, needs, problems, router
from controller.store.access import TokenRecord

_NAME = r"^[a-z0-9][a-z0-9.-]{0,62}$"
_DATAFLOW = r"^[a-z][a-z0-9_]{0,62}$"

routes = router("tokens")

# Without an underscore, so that a pasted token is never valid as a name, and is not logged.
TokenName = Annotated[str, Path(pattern=_NAME)]


class TokenIn(Model):
    """The token to make."""

    name: str = Field(pattern=_NAME, description="Its name in the audit log; a name is used once.")
    scope: Scope
    expires_days: int | None = Field(
        90, ge=1, le=3660, strict=True, description="Days until it expires; `null` means never."
    )
    dataflows: list[Annotated[str, Field(pattern=_DATAFLOW)]] | None = Field(
        None,
        min_length=1,
        max_length=100,
        description="The only dataflows that the token may access. Such a token cannot be used on "
        "the page, or for requests about several dataflows. `null` means all dataflows.",
    )


class RotateQuery(Model):
    """How a token is rotated."""

    overlap_hours: float = Field(
        0.0, ge=0, le=168, description="Hours for which the old secret is still accepted."
    )


class TokenOut(Model):
    """A token, without its secret."""

    name: str
    scope: Scope
    state: Literal["valid", "expired", "revoked"]
    prefix: str = Field(description="How the token begins; not part of its secret.")
    dataflows: list[str] | None
    created_by: str
    created_at: datetime
    expires_at: datetime | None
    last_used_at: datetime | None = Field(description="Time of the last request, to the minute.")
    rotated_at: datetime | None
    old_until: datetime | None = Field(description="Time until which the old secret is accepted.")
    revoked_at: datetime | None


class NewTokenOut(Model):
    """A token with its secret, which is shown this once."""

    token: TokenOut
    secret: str


@routes.get("/tokens")
@needs(Scope.ADMIN)
def list_tokens(
    access: AccessDep, cursors: CursorsDep, query: PageQuery = Query()
) -> Page[TokenOut]:
    """List tokens, newest first; the token file is not listed."""
    page = access.tokens.list(cursor=cursors.open(query.cursor), limit=cursors.size(query))
    return Page(
        items=[_shown(token, access.tokens.now()) for token in page.items],
        cursor=cursors.seal(page.cursor),
    )


@routes.post("/tokens", status_code=201, responses=problems(409))
@needs(Scope.ADMIN, any_instance=True)
def create(
    wanted: TokenIn, caller: CallerDep, access: AccessDep, exchange: ExchangeDep
) -> NewTokenOut:
    """Create a token; only this answer contains its secret."""
    exchange.target["token"] = wanted.name
    days = wanted.expires_days
    record, made = access.tokens.create(
        wanted.name,
        wanted.scope,
        by=caller.actor,
        life=None if days is None else timedelta(days=days),
        dataflows=None if wanted.dataflows is None else tuple(dict.fromkeys(wanted.dataflows)),
    )
    return _new(access, record, made)


@routes.post("/tokens/{token}/rotate", responses=problems(404, 409))
@needs(Scope.ADMIN, any_instance=True)
def rotate(token: TokenName, access: AccessDep, query: RotateQuery = Query()) -> NewTokenOut:
    """Give a token a new secret and its full lifetime; sessions made from the token end."""
    overlap = timedelta(hours=query.overlap_hours)
    return _new(access, *access.tokens.rotate(token, overlap=overlap))


@routes.delete("/tokens/{token}", responses=problems(404))
@needs(Scope.ADMIN, any_instance=True)
def revoke(token: TokenName, access: AccessDep) -> TokenOut:
    """End a token and the sessions made from it at once; the list keeps the token. Idempotent."""
    return _shown(access.tokens.revoke(token), access.tokens.now())


def _new(access: Access, record: TokenRecord, made: NewToken) -> NewTokenOut:
    return NewTokenOut(token=_shown(record, access.tokens.now()), secret=made.text)


def _shown(token: TokenRecord, now: datetime) -> TokenOut:
    return TokenOut.of(token, state=_state(token, now))


def _state(token: TokenRecord, now: datetime) -> Literal["valid", "expired", "revoked"]:
    if token.revoked_at is not None:
        return "revoked"
    is_over = token.expires_at is not None and token.expires_at <= now
    return "expired" if is_over else "valid"
