"""Sessions of the page: sign in and out, codes for that, the caller, the list for an admin."""

from __future__ import annotations

from datetime import datetime

from fastapi import Query, Request, Response
from pydantic import Field, model_validator

from cbp.errors import CbpError, NotFoundError
from controller.access.access import Access
from controller.access.identity import TOKEN_FILE, Identity
from controller.api.answers.schemas import Model, Page, PageQuery
from controller.api.routing.cursors import CursorsDep
from controller.api.routing.dependencies import AccessDep, CallerDep, ExchangeDep, SettingsDep
from controller.api.routing.router_factory import Scope, needs, problems, router
from controller.api.security.callers import clear_cookie, set_cookie
from controller.store.access import CodeRecord, SessionRecord

SIGN_IN_PATH = "/ui/sign-in"
_SECRET_LENGTH = 500

routes = router("sessions")
sign_in_routes = router("sessions", is_open=True)


class SignIn(Model):
    """Either a code or a token."""

    code: str | None = Field(None, min_length=1, max_length=_SECRET_LENGTH)
    token: str | None = Field(None, min_length=1, max_length=_SECRET_LENGTH)

    @model_validator(mode="after")
    def _one(self) -> SignIn:
        if (self.code is None) is (self.token is None):
            message = "send exactly one of `code` and `token`"
            raise ValueError(message)
        return self


class CallerOut(Model):
    """The caller of this request."""

    actor: str = Field(
        description="Name in the audit log: `token-file`, `token:NAME` or `oidc:SUBJECT`."
    )
    scope: Scope
    session: str | None = Field(description="Id of the session; `null` if a token was sent.")
    dataflows: list[str] | None = Field(
        description="The only dataflows that the caller may access; `null` means all."
    )
    expires_at: datetime | None = Field(description="When the session or token ends.")
    idle_minutes: float | None = Field(
        description="Minutes without a request after which the session ends."
    )
    in_memory: bool = Field(
        description="Whether the session ends with this process, because the database could not "
        "store it."
    )


class CodeQuery(Model):
    """What the session may do."""

    scope: Scope | None = Field(
        None, description="Scope of the session. The token's scope is the default and the maximum."
    )


class CodeOut(Model):
    """A code that signs a browser in once."""

    code: str
    path: str = Field(
        description="Path and fragment of the link, to append to the service's address."
    )
    scope: Scope
    expires_at: datetime


class SessionOut(Model):
    """A browser that is signed in."""

    id: str
    actor: str = Field(description="The token from which the session was made.")
    scope: Scope
    created_at: datetime
    expires_at: datetime
    last_seen_at: datetime = Field(description="Last request, to the minute.")
    address: str
    agent: str = Field(description="The `User-Agent` that the browser sent.")
    current: bool = Field(description="Whether this request belongs to the session.")


@sign_in_routes.post("/session", status_code=201, responses=problems(401, 429))
@needs(None, any_instance=True)
def sign_in(
    wanted: SignIn,
    request: Request,
    response: Response,
    access: AccessDep,
    settings: SettingsDep,
    exchange: ExchangeDep,
) -> CallerOut:
    """Exchange a code or a token for a session; the answer sets its cookie.

    Needs the header `X-CBP-Request: 1`, and no credential besides the body.
    """
    address = request.client.host if request.client else ""
    credential = _checked(wanted, access, address)
    agent = request.headers.get("user-agent", "")
    secret, session = access.sessions.begin(credential, address=address, agent=agent)
    life = int(access.sessions.limits.life.total_seconds())
    set_cookie(response, request.scope, secret, life=life, secure=settings.secure_cookies)
    exchange.caller = Identity(
        scope=Scope(session.scope),
        token=session.token,
        session=session.id,
        expires_at=session.expires_at,
    )
    return _caller(exchange.caller, access)


@routes.get("/session")
@needs(Scope.VIEWER, any_dataflow=True)
def show(caller: CallerDep, access: AccessDep) -> CallerOut:
    """Return the caller's name, scope and expiry."""
    return _caller(caller, access)


@routes.delete("/session", status_code=204, responses=problems(404))
@needs(Scope.VIEWER, any_instance=True)
def sign_out(request: Request, response: Response, caller: CallerDep, access: AccessDep) -> None:
    """End the session of this request."""
    if not caller.session:
        raise NotFoundError(kind="session", name="of this request")
    access.sessions.end(caller.session)
    clear_cookie(response, request.scope)


@routes.post("/session/codes", status_code=201)
@needs(Scope.VIEWER, any_instance=True)
def make_code(caller: CallerDep, access: AccessDep, query: CodeQuery = Query()) -> CodeOut:
    """Make a code that signs in one browser within ten minutes; needs a token, not a session."""
    code, record = access.sessions.make_code(caller, query.scope)
    return CodeOut.of(record, code=code, path=f"{SIGN_IN_PATH}#code={code}")


@routes.get("/sessions")
@needs(Scope.ADMIN)
def list_sessions(
    caller: CallerDep, access: AccessDep, cursors: CursorsDep, query: PageQuery = Query()
) -> Page[SessionOut]:
    """List sessions, newest first."""
    page = access.sessions.list(cursor=cursors.open(query.cursor), limit=cursors.size(query))
    return Page(items=[_shown(one, caller) for one in page.items], cursor=cursors.seal(page.cursor))


@routes.delete("/sessions/{session}", status_code=204, responses=problems(404))
@needs(Scope.ADMIN, any_instance=True)
def end(session: str, access: AccessDep) -> None:
    """End a session at once."""
    access.sessions.end(session)


def _checked(wanted: SignIn, access: Access, address: str) -> CodeRecord | Identity:
    """Return what a code or a token permits; wrong ones are counted by address."""
    access.attempts.check(address)
    try:
        if wanted.code is not None:
            return access.sessions.take_code(wanted.code)
        return access.authentication.identify_token(wanted.token or "")
    except CbpError as error:
        if not error.retryable:
            access.attempts.note_wrong(address)
        raise


def _caller(caller: Identity, access: Access) -> CallerOut:
    idle = access.sessions.limits.idle.total_seconds() / 60
    return CallerOut.of(
        caller,
        session=caller.session or None,
        idle_minutes=idle if caller.session else None,
        in_memory=access.sessions.is_held(caller.session),
    )


def _shown(session: SessionRecord, caller: Identity) -> SessionOut:
    return SessionOut.of(
        session,
        actor=f"token:{session.token}" if session.token else TOKEN_FILE,
        current=session.id == caller.session,
    )
