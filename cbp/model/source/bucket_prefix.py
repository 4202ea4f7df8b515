"""A further location of a source's files, besides its drop folder: a prefix of a bucket; pure.

    s3://bucket/orders/     the objects whose keys begin with `orders/`
    s3://bucket             every object of the bucket

Absent on purpose: the address of the service that has the bucket, and its credentials. These are
settings of the operator.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_LOCATION = re.compile(r"s3://([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])(?:/(.*))?", re.DOTALL)
_PREFIX_BYTES_MAX = 900
"""Longest prefix: a key has at most 1,024 bytes, so at least 124 remain for names."""


@dataclass(frozen=True, slots=True)
class BucketPrefix:
    """The objects of a bucket whose keys begin with a prefix.

    Attributes:
        prefix: Ends with `/`, as a folder does; `""` means every object.
    """

    bucket: str
    prefix: str

    @classmethod
    def parse(cls, location: str) -> BucketPrefix:
        """Read a location such as `s3://bucket/orders/`; the last `/` may be left out.

        The message of its `ValueError` does not quote the location.
        """
        match = _LOCATION.fullmatch(location)
        prefix = (match[2] or "").rstrip("/") if match else ""
        if match is None or (prefix and not _is_plain(prefix)):
            place = "a bucket and a folder in it, such as s3://bucket/orders/"
            message = f"expected {place}, without a host, an access key, `..`, `?` or `#`"
            raise ValueError(message)
        return cls(match[1], f"{prefix}/" if prefix else "")

    def is_below(self, other: BucketPrefix) -> bool:
        """Return whether all of its objects are objects of another prefix."""
        return self.bucket == other.bucket and self.prefix.startswith(other.prefix)

    def __str__(self) -> str:
        return f"s3://{self.bucket}/{self.prefix}"


def _is_plain(prefix: str) -> bool:
    """Return whether every client and service takes a prefix literally, and it is not too long."""
    return (
        prefix.isprintable()
        and not set("?#\\") & set(prefix)
        and not {"", ".", ".."} & set(prefix.split("/"))
        and len(prefix.encode()) <= _PREFIX_BYTES_MAX
    )
