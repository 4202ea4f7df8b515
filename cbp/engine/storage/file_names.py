"""Names of the files that runs write."""

from __future__ import annotations

import hashlib
import re
import uuid

INDEX_PREFIX = "_key_"
"""Prefix of the columns that index a file's records; they are not part of the records."""
_CONTENT_BITS = 80
_PART = re.compile(r"(?:^|/)\d{12}-(\d{5})-[^/]*\.parquet\Z")
_WRITTEN = re.compile(
    r"(?:^|/)(?:(?P<data>\d{12})-\d{5}-[^/]*\.(?:parquet|deletes)"
    r"|deletion_vector_(?P<high>[0-9a-f]{8})-(?P<low>[0-9a-f]{4})-[^/]*\.bin)\Z"
)


def flow_file(index: int, part: int, run: str) -> str:
    """Return the name of an increment's file; index and part have fixed width."""
    return f"{index:012d}-{part:05d}-{run}.parquet"


def merged_file(epoch: int, run: str) -> str:
    """Return the path, below an output's table, of a merged file that a run writes."""
    return f"_runs/{flow_file(epoch, 0, f'{run}-merged')}"


def rewritten_file(epoch: int, number: int, run: str) -> str:
    """Return the path, below an output's table, of a file that a change of version writes."""
    return f"_runs/{flow_file(epoch, number, f'{run}-change')}"


def bucket_file(bucket: int, epoch: int, run: str, number: int) -> str:
    """Return the path of a run file of state, relative to the table."""
    return f"_runs/_bucket={bucket}/{epoch:012d}-{number:05d}-{run}.parquet"


def change_file(epoch: int, number: int, digest: str) -> str:
    """Return the path, below a view's table, of a change file; named by the file's content."""
    return f"_change_data/{flow_file(epoch, number, digest)}"


def vectors_id(epoch: int, content: bytes) -> uuid.UUID:
    """Return the UUID of a file of vectors, which is the same in a repeated publication.

    It has 48 bits of the epoch, and 80 bits of the content's digest.
    """
    digest = hashlib.sha256(content).digest()[: _CONTENT_BITS // 8]
    return uuid.UUID(int=epoch << _CONTENT_BITS | int.from_bytes(digest))


def file_epoch(path: str) -> int | None:
    """Return the epoch in a file's name, or `None` if no run gives such a name.

    For a data file or a file of deletes: the epoch whose run wrote it. For a file of deletion
    vectors and a change file: the last epoch that it covers.
    """
    match = _WRITTEN.search(path)
    if match is None:
        return None
    return int(match["data"]) if match["data"] else int(match["high"] + match["low"], 16)


def file_part(path: str) -> int:
    """Return the part in a data file's name: 0 for the first file, and for any other name."""
    match = _PART.search(path)
    return 0 if match is None else int(match[1])
