"""Errors of requests: invalid, too late, or addressed to another instance."""

from __future__ import annotations

import errno
from typing import ClassVar

from cbp.errors import CbpError, DiskFullError, OperatingError
from cbp.errors.message_limits import MISTAKES_MAX, shortened

_OF_THE_SYSTEM = frozenset(
    {
        errno.EROFS,
        errno.EACCES,
        errno.EPERM,
        errno.EIO,
        errno.ESTALE,
        errno.EMFILE,
        errno.ENFILE,
        errno.ENOMEM,
    }
)


class RequestError(CbpError):
    """A request is malformed or not permitted as it was sent."""

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


class VersionDiffersError(RequestError):
    """The header If-Match does not name the current version."""

    code = "version_differs"

    def __init__(self, dataflow: str, given: str, version: int) -> None:
        given = shortened(given, 100)
        super().__init__(
            f"{dataflow!r} is at version {version}, but If-Match names {given}. Read the current "
            'version and send its ETag, such as If-Match: "3"',
            dataflow=dataflow,
            if_match=given,
            version=version,
        )


class HostRefusedError(RequestError):
    """The Host header names another host (DNS rebinding)."""

    code = "host_refused"

    def __init__(self, host: str) -> None:
        host = shortened(host, 100)
        super().__init__(
            f"the Host header {host!r} is not a host of this service. Use the address on which "
            "the service listens, or set CBP_ADVERTISE_URL to the address that clients use and "
            "restart the service",
            host=host,
        )


class OriginRefusedError(RequestError):
    """A page of another origin made the request."""

    code = "origin_refused"

    def __init__(self, origin: str) -> None:
        origin = shortened(origin, 100)
        super().__init__(
            f"the Origin header {origin!r} is not this service's address, and requests from pages "
            "of other sites are refused. Send the request from a program, without that header",
            origin=origin,
        )


class RequestUnmarkedError(RequestError):
    """A request with a session's cookie lacks the header that only the page itself can send."""

    code = "request_unmarked"

    def __init__(self, header: str) -> None:
        super().__init__(
            f"a change that is authorised by a session cookie needs the header {header}: 1, which "
            "a forged form cannot send. Programs send a bearer token instead of a cookie",
            header=header,
        )


class BodyTooLargeError(RequestError):
    """The body is above its limit; none of it was kept."""

    code = "body_too_large"

    def __init__(self, bytes_max: int, *, setting: str) -> None:
        super().__init__(
            f"the body is larger than {bytes_max} bytes. Send a smaller body, or raise {setting} "
            "and restart the service",
            bytes_max=bytes_max,
            setting=setting,
        )


class ClientTooSlowError(RequestError):
    """The client sent its body too slowly; none of the body was kept."""

    code = "client_too_slow"
    retryable = True

    def __init__(self, seconds: float, *, bytes_per_second_min: int) -> None:
        super().__init__(
            f"the body arrived too slowly: nothing for {seconds:g} s, or less than "
            f"{bytes_per_second_min} bytes/s. Send the request again, or raise "
            "CBP_CLIENT_IDLE_SECONDS",
            idle_seconds=seconds,
            bytes_per_second_min=bytes_per_second_min,
        )


class MediaTypeError(RequestError):
    """The route does not read bodies of this content type."""

    code = "media_type_unsupported"

    def __init__(self, media_type: str, allowed: tuple[str, ...]) -> None:
        super().__init__(
            f"the content type {media_type or 'none'!r} is not supported; use one of "
            f"{', '.join(allowed)}",
            found=media_type,
            allowed=list(allowed),
        )


class ContentEncodingError(RequestError):
    """A body is compressed, which no route accepts."""

    code = "content_encoding_unsupported"

    def __init__(self, encoding: str) -> None:
        super().__init__(
            f"the content encoding {shortened(encoding, 100)!r} is not supported; send the body "
            "without Content-Encoding (a file whose name ends in .gz may be compressed)",
            found=shortened(encoding, 100),
        )


class IdempotencyKeyReusedError(RequestError):
    """An Idempotency-Key was sent with a different body than the first time."""

    code = "idempotency_key_reused"

    def __init__(self) -> None:
        super().__init__(
            "this Idempotency-Key was already used for a different request; use a new key"
        )


class IdempotencyKeyBusyError(RequestError):
    """The first request with this Idempotency-Key is still being served."""

    code = "idempotency_key_busy"
    retryable = True

    def __init__(self) -> None:
        super().__init__(
            "the first request with this Idempotency-Key is still being served. Send the request "
            "again later to get its answer"
        )


class RunEndedError(RequestError):
    """A run that has ended cannot be cancelled."""

    code = "run_ended"

    def __init__(self, run: str, status: str) -> None:
        super().__init__(
            f"run {run} has already ended with status {status}", run=run, status=status
        )


class RunNotDueError(RequestError):
    """A run cannot be retried: it has not failed, or its epoch is done."""

    code = "run_not_due"

    def __init__(self, run: str, why: str) -> None:
        super().__init__(
            f"run {run} cannot be retried: {why}. A run can be retried only if it "
            "failed and its epoch is the next one of its stage",
            run=run,
        )


class NotLeadingError(OperatingError):
    """This instance cannot start runs, because it does not lead."""

    code = "not_leading"

    def __init__(self, why: str) -> None:
        super().__init__(f"this instance cannot start runs: {why}", cause=why)


class LedElsewhereError(RequestError):
    """Only the leading instance can do this; gives the leader's address."""

    code = "led_elsewhere"

    def __init__(self, leader: str) -> None:
        super().__init__(
            f"this instance does not lead; send the request to the leader at {leader}",
            leader=leader,
        )


def unforeseen_error(cause: Exception) -> CbpError:
    """Return the client's view of an exception that no route expected.

    An error of the disk or the system is no bug of this service, so it is reported unchanged.
    """
    if not isinstance(cause, OSError):
        return InternalError()
    path = str(cause.filename or "the service's files")
    if DiskFullError.is_disk_full(cause):
        return DiskFullError(path)
    if cause.errno in _OF_THE_SYSTEM:
        why = cause.strerror or str(cause)
        message = (
            f"{path}: {why}. Fix the problem on the service's machine, then send the request again"
        )
        return OperatingError(message, path=path, cause=why)
    return InternalError()


class InternalError(CbpError):
    """An unexpected failure; the log has the traceback."""

    code = "internal_error"

    def __init__(self) -> None:
        super().__init__(
            "unexpected error in the service. Please report the bug, and include the traceback "
            "from the log of the service"
        )
