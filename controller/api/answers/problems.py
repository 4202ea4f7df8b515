"""Errors as HTTP: one table from code to status, one document for all (RFC 9457).

    {"type": "urn:cbp:error:not_found", "title": "A name, key or table does not exist",
     "status": 404, "detail": "there is no dataflow 'x'", "instance": "/api/v1/dataflows/x",
     "error_code": "not_found", "message": "...", "details": {"kind": ..., "name": ...}}

`type` and `error_code` are stable. `title` is what all errors of a type have in common: the first
sentence of the error's class. `detail` describes this error. Both are for people, and may change.
Every error class of the product is in `STATUS` (tests/controller/api/answers/test_problems.py). An
error with another code is logged and answered with 500; its status is never guessed.
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
"""Key in a request's scope; the value is the error code with which the request was answered."""

_CODES: Mapping[int, str] = {
    400: "host_refused request_refused",
    401: "unauthenticated",
    403: """
        code_refused dataflow_not_granted origin_refused request_unmarked scope_too_low token_needed
    """,
    404: "not_found route_unknown",
    405: "method_not_allowed",
    408: "client_too_slow",
    409: """
        already_exists answer_late change_refused code_drifted code_not_loaded dataflow_busy
        dataflow_drains dataflow_unsettled dataflows_too_many delta_changes_refused
        delta_feed_disabled delta_place_refused delta_table_replaced delta_unsupported
        delta_version_gone file_decided file_name_shared file_retracted flow_unframed
        idempotency_key_busy input_not_retained location_refused object_changed object_gone
        punctuation_unplaced readmit_refused records_absent replace_refused replacement_unfollowed
        rollback_impossible run_cancelled run_ended run_gave_way run_not_due run_stack_unseen
        sink_choice_refused sink_delivery_refused sink_gap sink_place_refused sink_rolled_back
        sink_target_foreign stage_paused table_feature_unsupported table_foreign
        table_foreign_writer table_not_repairable table_placement_differs table_released time_limit
        token_ended tokens_too_many verification_busy verification_interrupted version_unreadable
    """,
    410: "events_gone increment_collected version_gone",
    412: "version_differs",
    413: "body_too_large upload_too_large",
    415: "content_encoding_unsupported media_type_unsupported",
    421: "led_elsewhere",
    422: """
        address_refused alignment_backwards author_code_failed author_ended_process
        author_state_changed author_unsendable cursor_invalid cycle_undrained dataflow_invalid
        decision_invalid definition_invalid destination_invalid file_rejected frames_scattered
        framing_key_invalid idempotency_key_reused increment_absent input_read_twice lookup_several
        lookup_too_large memo_not_serialisable output_key_foreign output_key_twice query_invalid
        query_refused query_time query_too_large records_returned removal_refused request_invalid
        route_flow_unknown route_key_invalid run_context_hidden set_aside_full state_expires_remote
        state_kept_remote state_key_foreign verification_too_large view_key_twice view_remote
    """,
    429: "too_many_attempts too_many_requests",
    500: """
        address_space_bounded cbp_error database_url_invalid dataflow_failed file_damaged file_lost
        file_system_unsafe increment_damaged internal_error invariant_broken rebuild_incomplete
        run_too_large sink_failed source_failed spark_setting_unsafe spark_unauthenticated
    """,
    503: """
        bucket_denied bucket_failed bucket_gone correction_unfinished database_damaged
        database_in_use database_newer database_silent delta_table_gone disk_full
        drop_folder_unusable engine_starting event_streams_exhausted file_unread intake_stopped
        lease_lost log_conflict not_leading object_too_slow oidc_packages_missing oidc_unavailable
        operating_failure outbound_failed queries_busy query_failed s3_packages_missing
        sink_delivery_failed sink_secret_missing sink_target_failed spark_job_failed spark_lost
        spark_unstarted telemetry_packages_missing worker_ended
    """,
}

STATUS: Mapping[str, int] = {
    code: status for status, codes in _CODES.items() for code in codes.split()
}

_REFUSALS = frozenset({"event_streams_exhausted", "file_unread", "intake_stopped", "not_leading"})
"""Codes of status 503 with which this instance refuses a request although nothing has failed."""

_log = structlog.get_logger(__name__)


class _RouteError(RequestError):
    """There is no resource at this path."""

    code = "route_unknown"


class _MethodError(RequestError):
    """The resource does not support this method."""

    code = "method_not_allowed"


def title_of(kind: type[CbpError]) -> str:
    """Return the title of a type of problem: the first sentence of its class, up to a semicolon.

    Without docstrings (`python -OO`) the title is the error code in words.
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
    if error.code == EngineStartingError.code:  # clients that wait for the engine poll each second
        _log.debug("request refused", **fields)
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
    if isinstance(error, FileDamagedError):  # this request may be the first to find the damage
        response.background = BackgroundTask(request.app.state.parts.controller.scrubs.note, error)
    return response


async def _on_invalid_request(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    # Values are not repeated: one of them may be a misplaced secret.
    mistakes = [
        {
            "code": str(line["type"]),
            "where": ".".join(map(str, line["loc"])),
            "message": line["msg"],
        }
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
