"""What a caller needs for each route: declared beside the route, and checked before its body.

    @routes.post("/dataflows/{name}/pause")
    @needs(Scope.OPERATOR)
    def pause(name: str, ...) -> DataflowSummary: ...

Deny by default: a route that declares nothing cannot be made, so the service does not start.
`deploy/README.md` says why each route needs its scope.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Hashable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from fastapi import Request, Response
from fastapi.routing import APIRoute

from controller.access.errors import DataflowNotGrantedError, ScopeTooLowError, UnauthenticatedError
from controller.access.identity import Identity
from controller.access.scopes import Scope
from controller.api.requests.shared_answers import SharedAnswers
from controller.api.routing.short_path import Shortened
from controller.api.security.callers import READS
from controller.api.security.exchange import Exchange, exchange_of

Endpoint = TypeVar("Endpoint", bound=Callable[..., Any])

_NEED = "cbp_need"
_OF_ONE_DATAFLOW = "/dataflows/{name}"


@dataclass(frozen=True, slots=True)
class Need:
    """What a route needs of its caller and of the process that serves it; decorates the route.

    Attributes:
        scope: The scope that a caller needs; `None` if the route is public.
        changes: Whether the route can change something; otherwise it is not audited. By default
            every method but GET does.
        any_dataflow: Whether tokens that are limited to dataflows may use it although its path
            names none. Such a route concerns no dataflow, or calls `require_granted` once it
            knows the dataflow of a record, or leaves out records of other dataflows.
        any_instance: Whether it writes only to the store, so that any instance can serve it.
        leader_only: Whether it reads data that only the leader's process has.
        read_anywhere: Whether its answer depends only on the store, the tables, registered code,
            the path, the query, the dataflows that the caller may access, and the time, but on no
            header. Then equal requests share answers (`controller.api.requests.shared_answers`).
        lasting: Whether its answer stays the same until the store changes: it reads no table and
            shows no changing time. A route marks exceptions with `Exchange.passing`.
        of_store: Whether its answer is made from the store and memory, and from no table, as every
            lasting one is. Separate threads make such answers (`short_path.py`), since many clients
            share each of them, and must not wait for look-ups.
    """

    scope: Scope | None
    changes: bool = field(default=True, kw_only=True)
    any_dataflow: bool = field(default=False, kw_only=True)
    any_instance: bool = field(default=False, kw_only=True)
    leader_only: bool = field(default=False, kw_only=True)
    read_anywhere: bool = field(default=False, kw_only=True)
    lasting: bool = field(default=False, kw_only=True)
    of_store: bool = field(default=False, kw_only=True)

    def __call__(self, endpoint: Endpoint) -> Endpoint:
        """Add this declaration to a route; used below the route's own decorator."""
        setattr(endpoint, _NEED, self)
        return endpoint


needs = Need
public = Need(None)
"""Declares that a route needs no credential; the guard must let it through, too."""


def find_need(endpoint: Any) -> Need | None:
    """Return the declaration of a route; `None` if it has none."""
    need: Need | None = getattr(endpoint, _NEED, None)
    return need


def need_of(endpoint: Any) -> Need:
    """Return the declaration of a route; raises `LookupError` with a remedy if it has none."""
    if (need := find_need(endpoint)) is None:
        message = (
            f"the route {endpoint.__module__}.{endpoint.__qualname__} does not declare who may "
            "call it: add @needs(Scope.VIEWER), OPERATOR or ADMIN below its route decorator "
            "(controller.api.routing.scope_check), and a row to the table in deploy/README.md if "
            "it is not obvious"
        )
        raise LookupError(message)
    return need


def require_granted(exchange: Exchange, dataflow: str) -> None:
    """Refuse a caller whose token is limited to dataflows other than a record's.

    Also notes the dataflow for the audit log, since the path does not name it.
    Raises `DataflowNotGrantedError`.
    """
    exchange.dataflow = dataflow
    require_touchable(exchange, dataflow)


def require_touchable(exchange: Exchange, dataflow: str | None) -> None:
    """Refuse a caller whose token excludes the dataflow; `None` refuses every limited token.

    Raises `DataflowNotGrantedError`.
    """
    assert exchange.caller is not None, "a route that is not public has a caller"
    if not exchange.caller.may_touch(dataflow):
        raise DataflowNotGrantedError(exchange.action, exchange.caller.dataflows or ())


def operation_id(route: APIRoute) -> str:
    """Return the stable name of an operation, such as `dataflows_pause`; it has no spaces."""
    return "_".join([*map(str, route.tags[:1]), route.name]).replace(" ", "_")


class ScopedRoute(APIRoute):
    """A route that checks its caller first."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **more: Any) -> None:
        need = need_of(endpoint)
        if need.scope is not None:
            more["openapi_extra"] = {
                **(more.get("openapi_extra") or {}),
                "x-cbp-scope": need.scope.value,
            }
        super().__init__(path, endpoint, **more)

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return a handler of a request that checks the caller before it reads the body."""
        need = need_of(self.endpoint)
        short = Shortened.of(self, of_store=need.of_store or need.lasting)
        whole, self.dependant = self.dependant, short.dependant
        serve = super().get_route_handler()
        self.dependant = whole  # the OpenAPI document needs all of it
        action = operation_id(self)
        of_one_dataflow = f"{_OF_ONE_DATAFLOW}/" in f"{self.path}/"

        async def check_and_serve(request: Request) -> Response:
            exchange = exchange_of(request.scope)
            exchange.action = action
            exchange.changes = need.changes and request.method not in READS
            if need.scope is not None:
                if exchange.caller is None:  # the guard let a route through that is not public
                    raise UnauthenticatedError
                dataflow = request.path_params["name"] if of_one_dataflow else None
                _authorise(exchange.caller, need, action, dataflow)
            if not need.read_anywhere:
                return await prepare_and_serve(request)

            async def make() -> tuple[Response, bool]:
                return await prepare_and_serve(request), not exchange.passing

            answers: SharedAnswers = request.app.state.parts.answers
            return await answers.answer(_key_of(request, exchange), make, lasts=need.lasting)

        async def prepare_and_serve(request: Request) -> Response:
            await short.prepare(request)
            return await serve(request)

        return check_and_serve


def _key_of(request: Request, exchange: Exchange) -> Hashable:
    """Return everything that the answer of a read depends on, except the time."""
    caller, scope = exchange.caller, request.scope
    assert caller is not None, "a route that is not public has a caller"
    return scope["path"], scope["query_string"], caller.scope, caller.dataflows


def _authorise(caller: Identity, need: Need, action: str, dataflow: str | None) -> None:
    """Raise if a caller may not do this; `dataflow`: the only one that the route is about."""
    assert need.scope is not None
    if not caller.scope.includes(need.scope):
        raise ScopeTooLowError(need.scope, caller.scope, action)
    if not (need.any_dataflow or caller.may_touch(dataflow)):
        raise DataflowNotGrantedError(action, caller.dataflows or ())
