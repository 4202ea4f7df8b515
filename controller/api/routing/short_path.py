"""Shortens FastAPI's work for each request; routes and their answers stay the same.

- Dependencies that need only the request, and each other, are called directly (`prepare`).
- The answer of a function that blocks is checked and written as JSON in the thread that made it.
- Answers made from the store alone have threads of their own. They are quick, and would otherwise
  wait for all earlier look-ups.

Everything else, above all parameters and bodies, is left to FastAPI.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from anyio import CapacityLimiter, to_thread
from anyio.lowlevel import RunVar
from fastapi import Request, Response
from fastapi.datastructures import DefaultPlaceholder
from fastapi.dependencies.models import Dependant
from fastapi.exceptions import ResponseValidationError
from fastapi.routing import APIRoute

_Known = dict[Any, Any]
_Solve = Callable[[Request, _Known], Awaitable[Any]]

_VALUES = "cbp.dependencies"
_REQUEST = "cbp_request"
"""A parameter's name that no endpoint has."""

_OF_ANY_REQUEST = (
    "call",
    "name",
    "path",
    "scope",
    "request_param_name",
    "http_connection_param_name",
    "dependencies",
    "own_oauth_scopes",
    "parent_oauth_scopes",
)
"""The only fields that may be set for a dependency that needs no more than the request."""

STORE_THREADS = 8
_STORE_THREADS: RunVar[CapacityLimiter] = RunVar("cbp_store_threads")


@dataclass(frozen=True, slots=True)
class Shortened:
    """The part of a route that is left to FastAPI, and the part done before.

    Attributes:
        direct: Name of the endpoint's parameter, if any, and the function that returns its value.
    """

    dependant: Dependant
    direct: Sequence[tuple[str | None, _Solve]]

    @classmethod
    def of(cls, route: APIRoute, *, of_store: bool = False) -> Shortened:
        """Return a route's shortened path; `of_store`: see `controller.api.routing.scope_check`."""
        whole, endpoint = route.dependant, route.endpoint
        if inspect.isgeneratorfunction(endpoint) or inspect.isasyncgenfunction(endpoint):
            return cls(whole, ())
        solvers = [(one, _solver(one)) for one in whole.dependencies]
        direct = [(one.name, solve) for one, solve in solvers if solve is not None]
        left = replace(
            whole,
            dependencies=[one for one, solve in solvers if solve is None],
            request_param_name=whole.request_param_name or _REQUEST,
        )
        left.call = _called(route, left, of_store=of_store)
        return cls(left, direct)

    async def prepare(self, request: Request) -> None:
        """Find the values of the direct dependencies; raises their exceptions."""
        known: _Known = {}
        values = request.scope[_VALUES] = {}
        for name, solve in self.direct:
            value = await solve(request, known)
            if name is not None:
                values[name] = value


def _solver(dependant: Dependant) -> _Solve | None:
    """Return how to call a dependency; `None` if it blocks, or needs more than the request."""
    call = dependant.call
    mine = dependant.request_param_name or dependant.http_connection_param_name
    plain = Dependant(**{name: getattr(dependant, name) for name in _OF_ANY_REQUEST})
    if dependant != plain or dependant.own_oauth_scopes or not _is_coroutine(call):
        return None
    assert call is not None, "a coroutine"
    inner = [(str(one.name), _solver(one)) for one in dependant.dependencies]
    solvers = [(name, solve) for name, solve in inner if solve is not None]
    if len(solvers) < len(inner):
        return None

    async def solve(request: Request, known: _Known) -> Any:
        if call not in known:
            values = {name: await one(request, known) for name, one in solvers}
            if mine is not None:
                values[mine] = request
            known[call] = await call(**values)
        return known[call]

    return solve


def _is_coroutine(call: Any) -> bool:
    return inspect.iscoroutinefunction(call) or inspect.iscoroutinefunction(
        getattr(call, "__call__", None)  # noqa: B004
    )


def _called(route: APIRoute, dependant: Dependant, *, of_store: bool) -> Callable[..., Any]:
    """Return an endpoint that also gets the values of the direct dependencies."""
    endpoint, name = route.endpoint, dependant.request_param_name

    def complete(values: dict[str, Any]) -> dict[str, Any]:
        request = values[_REQUEST] if name == _REQUEST else values[str(name)]
        more: dict[str, Any] = request.scope[_VALUES]
        return {key: value for key, value in values.items() if key != _REQUEST} | more

    if inspect.iscoroutinefunction(endpoint):

        @functools.wraps(endpoint)
        async def answer(**values: Any) -> Any:
            return await endpoint(**complete(values))

        return answer

    encode = _encoder(route)

    @functools.wraps(endpoint)
    def answer_in_thread(**values: Any) -> Any:
        return encode(endpoint(**complete(values)))

    if not of_store:
        return answer_in_thread

    @functools.wraps(endpoint)
    async def answer_of_store(**values: Any) -> Any:
        make = functools.partial(answer_in_thread, **values)
        return await to_thread.run_sync(make, limiter=store_threads())

    return answer_of_store


def store_threads() -> CapacityLimiter:
    """Return the limit of threads for answers from the store alone, in this event loop."""
    try:
        return _STORE_THREADS.get()
    except LookupError:
        limiter = CapacityLimiter(STORE_THREADS)
        _STORE_THREADS.set(limiter)
        return limiter


def _encoder(route: APIRoute) -> Callable[[Any], Any]:
    """Return the function that turns an endpoint's result into a response, or the identity."""
    field, status = route.response_field, route.status_code
    own_class = not isinstance(route.response_class, DefaultPlaceholder)
    chosen = route.response_model_include or route.response_model_exclude
    if field is None or own_class or chosen or _sets_headers(route.dependant):
        return lambda answer: answer
    options = {
        "by_alias": route.response_model_by_alias,
        "exclude_unset": route.response_model_exclude_unset,
        "exclude_defaults": route.response_model_exclude_defaults,
        "exclude_none": route.response_model_exclude_none,
    }

    def encode(answer: Any) -> Any:
        if isinstance(answer, Response):
            return answer
        value, errors = field.validate(answer, {}, loc=("response",))
        if errors:
            raise ResponseValidationError(errors=errors, body=answer)
        content = field.serialize_json(value, include=None, exclude=None, **options)
        return Response(content, status or 200, media_type="application/json")

    return encode


def _sets_headers(dependant: Dependant) -> bool:
    """Return whether an endpoint or a dependency gets the response, and may change it."""
    return dependant.response_param_name is not None or any(
        _sets_headers(one) for one in dependant.dependencies
    )
