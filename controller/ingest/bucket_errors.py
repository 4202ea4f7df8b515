"""Why no objects of a bucket are taken in; each is shown at its source, with advice.

OperatingError
|- LocationRefusedError   the settings do not allow the location
|- BucketPackagesError    s3fs is not installed
|- BucketGoneError        there is no such bucket
|- BucketDeniedError      the key may not list or read it, or is no valid key
|- BucketFailedError      the service that has it is away, or answers with an error
|- ObjectSlowError        an object comes too slowly
|- ObjectGoneError        an object was deleted since it was listed
'- ObjectChangedError     an object was written anew since it was listed

None of them touches what was taken in, and each listing tries again. The last two end only the
fetch of one object: the next listing shows what is there by then. No message has a credential.
"""

from __future__ import annotations

from cbp.errors import OperatingError

__all__ = [
    "BucketDeniedError",
    "BucketFailedError",
    "BucketGoneError",
    "BucketPackagesError",
    "LocationRefusedError",
    "ObjectChangedError",
    "ObjectGoneError",
    "ObjectSlowError",
]


class LocationRefusedError(OperatingError):
    """The service's settings do not allow the location of a source."""

    code = "location_refused"
    retryable = False

    def __init__(self, source: str, why: str) -> None:
        super().__init__(f"the location of source {source!r}: {why}", source=source, cause=why)


class BucketPackagesError(OperatingError):
    """A location needs packages of the extra `cbp[s3]`."""

    code = "s3_packages_missing"
    retryable = False

    def __init__(self, package: str) -> None:
        super().__init__(
            f"the location of a source needs the package {package}, which is not installed; "
            "install `cbp[s3]` and restart the service",
            package=package,
        )


class BucketGoneError(OperatingError):
    """There is no such bucket."""

    code = "bucket_gone"

    def __init__(self, bucket: str) -> None:
        super().__init__(
            f"there is no bucket {bucket!r}; make it, correct `location` in the document, or "
            "correct CBP_S3_ENDPOINT",
            bucket=bucket,
        )


class BucketDeniedError(OperatingError):
    """The key may not list or read a bucket, or is no valid key."""

    code = "bucket_denied"

    def __init__(self, what: str, why: str) -> None:
        super().__init__(
            f"{what} may not be read: {why}. Allow ListBucket and GetObject to the key of "
            "CBP_S3_ACCESS_KEY_ID, or correct the key",
            object=what,
            cause=why,
        )


class BucketFailedError(OperatingError):
    """The service that has a bucket is away, or answers with an error."""

    code = "bucket_failed"

    def __init__(self, what: str, why: str) -> None:
        super().__init__(
            f"{what} could not be read: {why}. It is tried again by itself; if this goes on, look "
            "after the service that has the bucket, or correct CBP_S3_ENDPOINT",
            object=what,
            cause=why,
        )


class ObjectSlowError(OperatingError):
    """An object comes too slowly."""

    code = "object_too_slow"

    def __init__(self, what: str, seconds: float) -> None:
        super().__init__(
            f"{what} had not come after {seconds:.0f} s; it is tried again by itself. Look after "
            "the network, or raise CBP_FILE_SECONDS_MAX",
            object=what,
            seconds=seconds,
        )


class ObjectGoneError(OperatingError):
    """An object was deleted since it was listed."""

    code = "object_gone"

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} was deleted since it was listed", object=what)


class ObjectChangedError(OperatingError):
    """An object was written anew since it was listed."""

    code = "object_changed"

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what} was written anew since it was listed; the next listing takes it in as it is",
            object=what,
        )
