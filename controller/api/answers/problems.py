"""Errors as HTTP: one table from code to status, one document for all (RFC 9457).

    {"type": "urn:cbp:error:not_found", "title": "A name, key or table does not exist",
     "status": 404, "detail": "there is no dataflow 'x'", "instance": "/api/v1/dataflows/x",
     "error_code": "not_found", "message": "...", "details": {"kind": ..., "name": ...}}

`type` and `error_code` are stable. `title` is what all errors of a type have in common: the first
sentence of the error's class. `detail` is about this one. Both are for people, and may change.
Every error class of the product is in `STATUS` (tests/controller/api/answers/test_problems.py).
A code that is missing there is answered with 500 and logged, never guessed.
"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.background import BackgroundTask
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from cbp.errors import CbpError, EngineStartingError, FileDamagedError
from controller.access.secret_text import mask_tokens
from controller.api.answers.json_values import json_value
from controller.api.answers.request_errors import RequestError, RequestInvalidError

MEDIA_TYPE = "application/problem+json"
RETRY_SECONDS = 5
ERROR_CODE = "cbp.error_code"
"""Where the scope of a request has the code of the problem that it got."""

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
    "run_context_hidden": 422,
    "state_key_foreign": 422,
    "state_kept_remote": 422,
    "state_expires_remote": 422,
    "lookup_several": 422,
    "lookup_too_large": 422,
    "output_key_foreign": 422,
    "output_key_twice": 422,
    "set_aside_full": 422,
    "view_key_twice": 422,
    "view_remote": 422,
    "author_state_changed": 422,
    "author_unsendable": 422,
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
    "run_too_large": 500,
    "log_conflict": 503,
    "lease_lost": 503,
    "spark_job_failed": 503,
    "worker_ended": 503,
    "spark_lost": 503,
    "spark_unstarted": 503,
    "engine_starting": 503,
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
    "correction_unfinished": 503,
    "dataflow_failed": 500,
    "rollback_impossible": 409,
    "replace_refused": 409,
    "replacement_unfollowed": 409,
    "records_absent": 409,
    "input_not_retained": 409,
    "dataflow_unsettled": 409,
    "verification_busy": 409,
    "verification_interrupted": 409,
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
    "database_silent": 503,
    "telemetry_packages_missing": 503,
    "version_differs": 412,
    # queries
    "query_refused": 422,
    "query_invalid": 422,
    "query_time": 422,
    "query_too_large": 422,
    "queries_busy": 503,
    "query_failed": 503,
    # the drop folder
    "drop_folder_unusable": 503,
    "source_failed": 500,
    "upload_too_large": 413,
    "file_decided": 409,
    "file_retracted": 409,
    "readmit_refused": 409,
    "intake_stopped": 503,
    "delta_place_refused": 409,
    "delta_table_gone": 503,
    "delta_table_replaced": 409,
    "delta_feed_disabled": 409,
    "delta_unsupported": 409,
    "delta_version_gone": 409,
    "delta_changes_refused": 409,
    "location_refused": 409,
    "s3_packages_missing": 503,
    "bucket_gone": 503,
    "bucket_denied": 503,
    "bucket_failed": 503,
    "object_too_slow": 503,
    "object_gone": 409,
    "object_changed": 409,
    "dataflow_drains": 409,
    "stage_paused": 409,
    "file_rejected": 422,
    # other services
    "oidc_unavailable": 503,
    "oidc_packages_missing": 503,
    "address_refused": 422,
    "outbound_failed": 503,
    # sinks
    "sink_target_failed": 503,
    "sink_place_refused": 409,
    "sink_target_foreign": 409,
    "sink_rolled_back": 409,
    "sink_gap": 409,
    "sink_delivery_failed": 503,
    "sink_delivery_refused": 409,
    "sink_secret_missing": 503,
    "sink_choice_refused": 409,
    "sink_failed": 500,
    # the event stream
    "event_streams_exhausted": 503,
    "events_gone": 410,
    # the requests themselves
    "request_refused": 400,
    "request_invalid": 422,
    "unauthenticated": 401,
    "scope_too_low": 403,
    "dataflow_not_granted": 403,
    "code_refused": 403,
    "token_needed": 403,
    "too_many_attempts": 429,
    "too_many_requests": 429,
    "tokens_too_many": 409,
    "token_ended": 409,
    "request_unmarked": 403,
    "host_refused": 400,
    "origin_refused": 403,
    "body_too_large": 413,
    "client_too_slow": 408,
    "media_type_unsupported": 415,
    "content_encoding_unsupported": 415,
    "idempotency_key_reused": 422,
    "idempotency_key_busy": 409,
    "run_ended": 409,
    "run_not_due": 409,
    "route_unknown": 404,
    "method_not_allowed": 405,
    "not_leading": 503,
    "led_elsewhere": 421,
    "internal_error": 500,
}

_REFUSALS = frozenset({"event_streams_exhausted", "intake_stopped", "not_leading"})
"""Codes of status 503 by which this instance refuses what it could do: nothing has failed in it."""

_log = structlog.get_logger(__name__)


class _RouteError(RequestError):
    """There is no resource at this path."""

    code = "route_unknown"


class _MethodError(RequestError):
    """The resource does not take this method."""

    code = "method_not_allowed"


def title_of(kind: type[CbpError]) -> str:
    """Return the summary of a type of problem: its class's first sentence, up to a semicolon.

    Without docstrings (`python -OO`) it is the code in words.
    """
    sentence = " ".join((kind.__doc__ or "").partition("\n\n")[0].split())
    return sentence.partition(";")[0].rstrip(".") or kind.code.replace("_", " ").capitalize()


def problem(error: CbpError, instance: str) -> tuple[int, dict[str, Any], dict[str, str]]:
    """Return status, document and headers of an error's response."""
    status = STATUS.get(error.code, 500)
    headers = {}
    if status == HTTPStatus.SERVICE_UNAVAILABLE and error.retryable:
        headers["Retry-After"] = str(RETRY_SECONDS)
    if status == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = 'Bearer realm="cbp"'
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        headers["Retry-After"] = str(error.details.get("retry_after_seconds", RETRY_SECONDS))
    document = {
        "type": f"urn:cbp:error:{error.code}",
        "title": title_of(type(error)),
        "status": status,
        "detail": error.message,
        "instance": instance,
        **error.as_dict(),
    }
    document = mask_tokens(json_value(document))
    return status, document, headers


def answer(error: CbpError, *, method: str, path: str) -> JSONResponse:
    """Log an error and return its response."""
    path = mask_tokens(path)
    status, document, headers = problem(error, path)
    fields = {"error_code": error.code, "status": status, "method": method, "path": path}
    if error.code == EngineStartingError.code:
        _log.debug(
            "request refused", **fields
        )  # a client that waits for the start asks every second
    elif error.code in _REFUSALS:
        _log.warning("request refused", **fields)
    elif status >= HTTPStatus.INTERNAL_SERVER_ERROR:
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
    request.scope[ERROR_CODE] = error.code
    response = answer(error, method=request.method, path=request.url.path)
    if isinstance(error, FileDamagedError):  # known to nobody else, perhaps
        response.background = BackgroundTask(request.app.state.parts.controller.scrubs.note, error)
    return response


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
        message = (
            f"{path} does not support {request.method}; /api/v1/openapi.json lists the methods"
        )
        response = await _on_cbp_error(request, _MethodError(message))
        response.headers.update(error.headers or {})
        return response
    if error.status_code == HTTPStatus.NOT_FOUND:
        message = f"there is no resource at {path}; /api/v1/openapi.json lists all"
        return await _on_cbp_error(request, _RouteError(message))
    return await _on_cbp_error(request, RequestError(str(error.detail)))


def _place(location: tuple[int | str, ...]) -> str:
    return ".".join(map(str, location))
