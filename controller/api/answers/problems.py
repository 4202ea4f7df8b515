"""Errors as HTTP: one table from code to status, one document for all (RFC 9457).

    {"type": "urn:cbp:error:not_found", "title": "Not Found", "status": 404,
     "detail": "there is no dataflow 'x'", "instance": "/api/v1/dataflows/x",
     "error_code": "not_found", "message": "...", "details": {"kind": ..., "name": ...}}

`type` and `error_code` are stable; `detail` is for people and may change. Every error class of the
product stands in `STATUS` (tests/controller/api/answers/test_problems.py). A code that is missing
there is answered with 500 and logged, never guessed.
"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, ClassVar

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from cbp.errors import CbpError, OperatingError
from cbp.errors.message_limits import MISTAKES_MAX, shortened
from controller.api.answers.json_values import json_value

__all__ = [
    "MEDIA_TYPE",
    "RETRY_SECONDS",
    "STATUS",
    "BodyTooLargeError",
    "ClientTooSlowError",
    "HostRefusedError",
    "IdempotencyKeyBusyError",
    "IdempotencyKeyReusedError",
    "InternalError",
    "LedElsewhereError",
    "MediaTypeError",
    "NotLeadingError",
    "OriginRefusedError",
    "RequestError",
    "RequestInvalidError",
    "RunEndedError",
    "UnauthenticatedError",
    "answer",
    "install",
    "problem",
]

MEDIA_TYPE = "application/problem+json"
RETRY_SECONDS = 5

STATUS: Mapping[str, int] = {
    # the library
    "cbp_error": 500,
    "definition_invalid": 422,
    "dataflow_invalid": 422,
    "change_refused": 409,
    "code_drifted": 409,
    "code_not_loaded": 409,
    "author_code_failed": 422,
    "decision_invalid": 422,
    "increment_absent": 422,
    "removal_refused": 422,
    "destination_invalid": 422,
    "route_key_invalid": 422,
    "route_flow_unknown": 422,
    "cycle_undrained": 422,
    "records_returned": 422,
    "author_ended_process": 422,
    "input_read_twice": 422,
    "state_key_foreign": 422,
    "author_state_changed": 422,
    "memo_not_serialisable": 422,
    "alignment_backwards": 422,
    "framing_key_invalid": 422,
    "frames_scattered": 422,
    "operating_failure": 503,
    "table_foreign": 409,
    "table_placement_differs": 409,
    "table_released": 409,
    "table_not_repairable": 409,
    "table_feature_unsupported": 409,
    "table_foreign_writer": 409,
    "file_system_unsafe": 500,
    "spark_setting_unsafe": 500,
    "spark_unauthenticated": 500,
    "address_space_bounded": 500,
    "log_conflict": 503,
    "lease_lost": 503,
    "spark_job_failed": 503,
    "worker_ended": 503,
    "spark_lost": 503,
    "disk_full": 503,
    "file_damaged": 500,
    "file_lost": 500,
    "increment_damaged": 500,
    "version_gone": 410,
    "increment_collected": 410,
    "version_unreadable": 409,
    "run_cancelled": 409,
    "run_gave_way": 409,
    "dataflow_busy": 409,
    "dataflow_failed": 500,
    "rollback_impossible": 409,
    "input_not_retained": 409,
    "dataflow_unsettled": 409,
    "nothing_verified": 409,
    "verification_busy": 409,
    "verification_too_large": 422,
    "punctuation_unplaced": 409,
    "rebuild_incomplete": 500,
    "time_limit": 409,
    "answer_late": 409,
    "not_found": 404,
    "already_exists": 409,
    "dataflows_too_many": 409,
    "flow_unframed": 409,
    "invariant_broken": 500,
    # the metadata store
    "cursor_invalid": 422,
    "database_url_invalid": 500,
    "database_in_use": 503,
    "database_damaged": 503,
    "database_newer": 503,
    # the drop folder
    "drop_folder_unusable": 503,
    "source_failed": 500,
    "upload_too_large": 413,
    "intake_stopped": 503,
    "file_rejected": 422,
    # the requests themselves
    "request_refused": 400,
    "request_invalid": 422,
    "unauthenticated": 401,
    "host_refused": 400,
    "origin_refused": 403,
    "body_too_large": 413,
    "client_too_slow": 408,
    "media_type_unsupported": 415,
    "content_encoding_unsupported": 415,
    "idempotency_key_reused": 422,
    "idempotency_key_busy": 409,
    "run_ended": 409,
    "route_unknown": 404,
    "method_not_allowed": 405,
    "not_leading": 503,
    "led_elsewhere": 421,
    "internal_error": 500,
}

_log = structlog.get_logger(__name__)


class RequestError(CbpError):
    """A request cannot be served as it was sent."""

    code: ClassVar[str] = "request_refused"


class RequestInvalidError(RequestError):
    """Parameters of a request are wrong; lists the first `MISTAKES_MAX` mistakes."""

    code = "request_invalid"

    def __init__(self, mistakes: list[dict[str, str]]) -> None:
        shown = [{k: shortened(v, 300) for k, v in m.items()} for m in mistakes[:MISTAKES_MAX]]
        first = f" (the first {len(shown)} of {len(mistakes)} mistakes)"
        more = first if len(mistakes) > len(shown) else ""
        lines = "; ".join(f"{m['where']}: {m['message']}" for m in shown)
        super().__init__(f"the request is wrong{more}: {lines}", mistakes=shown)


class UnauthenticatedError(RequestError):
    """The bearer token is missing or wrong."""

    code = "unauthenticated"

    def __init__(self) -> None:
        super().__init__(
            "a bearer token is required: send 'Authorization: Bearer <token>'; "
            "`cbp serve` says which file holds it"
        )


class HostRefusedError(RequestError):
    """The Host header names another host (DNS rebinding)."""

    code = "host_refused"

    def __init__(self, host: str) -> None:
        host = shortened(host, 100)
        super().__init__(
            f"the Host header {host!r} names no host of this service; use the address that it "
            "listens on, or set CBP_ADVERTISE_URL to the address that clients use and restart it",
            host=host,
        )


class OriginRefusedError(RequestError):
    """A page of another origin made the request."""

    code = "origin_refused"

    def __init__(self, origin: str) -> None:
        origin = shortened(origin, 100)
        super().__init__(
            f"the Origin header {origin!r} is not this service's address: requests from pages of "
            "other sites are refused; send the request from a program, without that header",
            origin=origin,
        )


class BodyTooLargeError(RequestError):
    """The body is above its limit; nothing of it was kept."""

    code = "body_too_large"

    def __init__(self, bytes_max: int, *, setting: str) -> None:
        super().__init__(
            f"the body is larger than {bytes_max} bytes; send less at once, or raise {setting} "
            "and restart the service",
            bytes_max=bytes_max,
            setting=setting,
        )


class ClientTooSlowError(RequestError):
    """The client sent nothing for too long, or too little; nothing of its body was kept."""

    code = "client_too_slow"
    retryable = True

    def __init__(self, seconds: float, *, bytes_per_second_min: int) -> None:
        super().__init__(
            f"the body came too slowly: nothing for {seconds:g} s, or less than "
            f"{bytes_per_second_min} bytes/s; send it again, or raise CBP_CLIENT_IDLE_SECONDS",
            idle_seconds=seconds,
            bytes_per_second_min=bytes_per_second_min,
        )


class MediaTypeError(RequestError):
    """The route does not read bodies of this content type."""

    code = "media_type_unsupported"

    def __init__(self, found: str, allowed: tuple[str, ...]) -> None:
        super().__init__(
            f"content type {found or 'none'!r}; use one of {', '.join(allowed)}",
            found=found,
            allowed=list(allowed),
        )


class ContentEncodingError(RequestError):
    """A body is compressed, which no route takes."""

    code = "content_encoding_unsupported"

    def __init__(self, found: str) -> None:
        super().__init__(
            f"content encoding {shortened(found, 100)!r}; send the body as it is, without "
            "Content-Encoding (a file whose name ends in .gz may be compressed)",
            found=shortened(found, 100),
        )


class IdempotencyKeyReusedError(RequestError):
    """An Idempotency-Key came with a different body than the first time."""

    code = "idempotency_key_reused"

    def __init__(self) -> None:
        super().__init__("this Idempotency-Key was used for another request; make a new one")


class IdempotencyKeyBusyError(RequestError):
    """The first request with this Idempotency-Key is still being served."""

    code = "idempotency_key_busy"
    retryable = True

    def __init__(self) -> None:
        super().__init__(
            "the first request with this Idempotency-Key is still being served; send it again "
            "later, and it gets the first one's answer"
        )


class RunEndedError(RequestError):
    """A run that has ended cannot be cancelled."""

    code = "run_ended"

    def __init__(self, run: str, status: str) -> None:
        super().__init__(f"run {run} has already ended: it is {status}", run=run, status=status)


class NotLeadingError(OperatingError):
    """This controller starts no more work: another one leads."""

    code = "not_leading"

    def __init__(self, why: str) -> None:
        super().__init__(f"this instance starts no more runs: {why}", cause=why)


class LedElsewhereError(RequestError):
    """Only the leading instance can do this; gives the leader's address."""

    code = "led_elsewhere"

    def __init__(self, leader: str) -> None:
        super().__init__(f"only the leader does this; send the request to {leader}", leader=leader)


class InternalError(CbpError):
    """An unexpected failure; the log has the stack."""

    code = "internal_error"

    def __init__(self) -> None:
        super().__init__(
            "unexpected error in the service; its log has the stack: send it with a bug report"
        )


class _RouteError(RequestError):
    """An error of the router itself, by its status."""

    code = "route_unknown"


class _MethodError(RequestError):
    """The route exists, but not with this method."""

    code = "method_not_allowed"


def problem(error: CbpError, instance: str) -> tuple[int, dict[str, Any], dict[str, str]]:
    """Return status, document and headers of an error's response."""
    status = STATUS.get(error.code, 500)
    headers = {}
    if status == HTTPStatus.SERVICE_UNAVAILABLE and error.retryable:
        headers["Retry-After"] = str(RETRY_SECONDS)
    if status == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = 'Bearer realm="cbp"'
    document = {
        "type": f"urn:cbp:error:{error.code}",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": error.message,
        "instance": instance,
        **error.as_dict(),
    }
    document = json_value(document)
    return status, document, headers


def answer(error: CbpError, *, method: str, path: str) -> JSONResponse:
    """Log an error and return its response."""
    status, document, headers = problem(error, path)
    fields = {"error_code": error.code, "status": status, "method": method, "path": path}
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        _log.error("request failed", **fields, exc_info=error)
    else:
        _log.info("request refused", **fields)
    return JSONResponse(document, status, headers, MEDIA_TYPE)


def install(app: FastAPI) -> None:
    """Make an app answer every error of its routes with a problem document."""
    app.add_exception_handler(CbpError, _on_cbp_error)
    app.add_exception_handler(RequestValidationError, _on_invalid_request)
    app.add_exception_handler(HTTPException, _on_http_error)


async def _on_cbp_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, CbpError)
    return answer(error, method=request.method, path=request.url.path)


async def _on_invalid_request(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    # Values are not repeated: one of them may be a misplaced secret.
    mistakes = [
        {"code": str(line["type"]), "where": _place(line["loc"]), "message": str(line["msg"])}
        for line in error.errors()
    ]
    return await _on_cbp_error(request, RequestInvalidError(mistakes))


async def _on_http_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    path = request.url.path
    if isinstance(error.__cause__, CbpError):  # raised while a body was read
        return await _on_cbp_error(request, error.__cause__)
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        message = f"{path} does not take {request.method}; /api/v1/openapi.json lists what it takes"
        response = await _on_cbp_error(request, _MethodError(message))
        response.headers.update(error.headers or {})
        return response
    if error.status_code == HTTPStatus.NOT_FOUND:
        message = f"there is no resource at {path}; /api/v1/openapi.json lists all"
        return await _on_cbp_error(request, _RouteError(message))
    return await _on_cbp_error(request, RequestError(str(error.detail)))


def _place(location: tuple[int | str, ...]) -> str:
    return ".".join(map(str, location))
