"""Object stores: the calls that a source needs of a service with buckets; and S3, by s3fs.

Nothing here writes, moves or deletes an object. Requests name bucket and key as they are
(`call_s3`): in a path such as fsspec's, a key that has `?versionId=` or ends in `/` would mean
another one. Each request has time limits and is tried again by botocore; if it still fails, one of
the errors of `controller.ingest.errors` is raised. No redirection is followed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from controller.ingest.errors import (
    BucketDeniedError,
    BucketFailedError,
    BucketGoneError,
    BucketPackagesError,
    ObjectChangedError,
    ObjectGoneError,
)


@dataclass(frozen=True, slots=True)
class StoredObject:
    """One object, as a listing shows it, by its full name in the bucket (`key`).

    The `etag` usually changes when the object is rewritten, but only the content decides;
    `modified` is by the clock of the store, and only compared for equality.
    """

    key: str
    etag: str
    size: int
    modified: datetime


class ObjectStore(Protocol):
    """A service that has buckets; methods can be called from several threads.

    Every method raises the errors of `controller.ingest.errors`, and no others.
    """

    def pages(self, bucket: str, prefix: str) -> Iterator[Sequence[StoredObject]]:
        """Yield the objects whose keys begin with a prefix, a page at a time."""

    def read(self, bucket: str, one: StoredObject, offset: int, size: int) -> bytes:
        """Return `size` bytes of an object; fewer if it is empty or the connection was cut.

        Raises `ObjectGoneError` or `ObjectChangedError` if it is no longer the object that was
        listed.
        """


CONNECT_SECONDS, READ_SECONDS = 5, 30
TRIES = 2
_SAID_MAX = 200

_GONE = frozenset({"NoSuchKey", "404"})
_CHANGED = frozenset({"PreconditionFailed", "412", "InvalidRange", "416"})
_DENIED = frozenset(
    {
        "403",
        "AccessDenied",
        "AccountProblem",
        "AllAccessDisabled",
        "AuthorizationHeaderMalformed",
        "ExpiredToken",
        "InvalidAccessKeyId",
        "InvalidObjectState",
        "InvalidToken",
        "RequestTimeTooSkewed",
        "SignatureDoesNotMatch",
    }
)
_NO_KEY = frozenset({"NoCredentialsError", "PartialCredentialsError", "CredentialRetrievalError"})


class S3Store:
    """An `ObjectStore` on S3; raises `BucketPackagesError` if s3fs is not installed.

    The endpoint `""` means AWS. If the key is `None`, botocore finds one. A request lists at most
    `page` objects; a service may list fewer.
    """

    def __init__(
        self,
        endpoint: str = "",
        key: str | None = None,
        secret: str | None = None,
        *,
        page: int = 1_000,
    ) -> None:
        try:
            from s3fs import S3FileSystem

            session = _session_class()
        except ImportError as error:
            raise BucketPackagesError(error.name or "s3fs") from error
        config: dict[str, Any] = {
            "connect_timeout": CONNECT_SECONDS,
            "read_timeout": READ_SECONDS,
            "retries": {"mode": "standard", "total_max_attempts": TRIES},
            "http_session_cls": session,
        }
        if endpoint:  # another service has rarely a host name for each bucket
            config["s3"] = {"addressing_style": "path"}
        self._page = page
        self._system = S3FileSystem(
            key=key,
            secret=secret,
            endpoint_url=endpoint or None,
            config_kwargs=config,
            use_listings_cache=False,
            skip_instance_cache=True,
        )
        self._system.retries = 1  # botocore retries, and knows for which errors it is worthwhile

    def pages(self, bucket: str, prefix: str) -> Iterator[Sequence[StoredObject]]:
        """Yield objects, a page at a time; see `ObjectStore`."""
        more: dict[str, str] = {}
        while True:
            answer = self._call(
                "list_objects_v2", bucket, None, Prefix=prefix, MaxKeys=self._page, **more
            )
            yield [
                StoredObject(one["Key"], one.get("ETag", ""), one["Size"], one["LastModified"])
                for one in answer.get("Contents", ())
            ]
            if not answer.get("IsTruncated"):
                return
            more = {"ContinuationToken": answer["NextContinuationToken"]}

    def read(self, bucket: str, one: StoredObject, offset: int, size: int) -> bytes:
        """Return a part of an object; see `ObjectStore`."""
        what = f"s3://{bucket}/{one.key}"
        part = {"Range": f"bytes={offset}-{offset + size - 1}"} if one.size else {}
        if one.etag:
            part["IfMatch"] = one.etag
        answer = self._call("get_object", bucket, one.key, **part)
        body = answer["Body"]
        # Compared here, since some services ignore If-Match; without the quotes, since some
        # services quote an ETag in one answer only.
        if one.etag and answer.get("ETag", "").strip('"') != one.etag.strip('"'):
            body.close()
            raise ObjectChangedError(what)
        if answer["ContentLength"] > size:
            body.close()
            raise BucketFailedError(what, "the answer has more bytes than were requested")
        return bytes(self._waited(body.read, bucket, one.key))

    def _call(self, method: str, bucket: str, key: str | None, **arguments: Any) -> Any:
        given = arguments if key is None else {"Key": key, **arguments}
        try:
            return self._system.call_s3(method, Bucket=bucket, **given)
        except Exception as error:  # of many libraries, and each means that the call failed
            raise _failure(error, bucket, key) from error

    def _waited(self, read: Any, bucket: str, key: str) -> Any:
        from fsspec.asyn import sync

        try:
            return sync(self._system.loop, read)
        except Exception as error:  # as above
            raise _failure(error, bucket, key) from error


def _session_class() -> type[Any]:
    """Return aiobotocore's HTTP session without redirections, which could lead anywhere."""
    from aiobotocore.httpsession import AIOHTTPSession

    class Straight:
        """An aiohttp session that follows no redirection; botocore gets it as the answer."""

        def __init__(self, session: Any) -> None:
            self._session = session

        async def request(self, *arguments: Any, **named: Any) -> Any:
            return await self._session.request(*arguments, **named, allow_redirects=False)

    class StraightSession(AIOHTTPSession):  # type: ignore[misc]
        async def _get_session(self, proxy_url: Any) -> Straight:
            return Straight(await super()._get_session(proxy_url))

    return StraightSession


def _failure(error: Exception, bucket: str, key: str | None) -> Exception:
    what = f"s3://{bucket}/{key or ''}"
    response = getattr(error, "response", None) or getattr(error.__cause__, "response", None)
    answer = response.get("Error", {}) if isinstance(response, dict) else {}
    code, said = str(answer.get("Code", "")), str(answer.get("Message", error))[:_SAID_MAX]
    why = f"{code or type(error).__name__}: {said}" if said else code or type(error).__name__
    if code == "NoSuchBucket":
        return BucketGoneError(bucket)
    if key is not None and code in _GONE:
        return ObjectGoneError(what)
    if key is not None and code in _CHANGED:
        return ObjectChangedError(what)
    if code in _DENIED or type(error).__name__ in _NO_KEY:
        return BucketDeniedError(what, why)
    return BucketFailedError(what, why)
