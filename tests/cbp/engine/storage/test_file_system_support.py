"""Which LogStore is taken for a scheme, and what is refused by name."""

from __future__ import annotations

import pytest

from cbp.engine.storage.files import log_store_class, setting_of
from cbp.errors import FileSystemUnsafeError

DYNAMO = "io.delta.storage.S3DynamoDBLogStore"


@pytest.mark.parametrize(
    ("uri", "name"),
    [
        ("hdfs://host/t", "HDFSLogStore"),
        ("abfss://c@a.dfs.core.windows.net/t", "AzureLogStore"),
        ("GS://bucket/t", "GCSLogStore"),
    ],
)
def test_a_scheme_chooses_its_store(uri: str, name: str) -> None:
    """HDFS renames without replacing, Azure and GCS create on condition."""
    assert log_store_class(uri, {}) == f"io.delta.storage.{name}"


def test_s3_needs_an_arbiter_and_is_told_which() -> None:
    """Without one, or with one that is safe in one process only, nothing starts."""
    single = "io.delta.storage.S3SingleDriverLogStore"
    for settings in ({}, {setting_of("s3a"): single}):
        with pytest.raises(FileSystemUnsafeError) as caught:
            log_store_class("s3a://bucket/t", settings)
        assert setting_of("s3a") in caught.value.message
        assert "ddb.tableName" in caught.value.message
    assert log_store_class("s3a://bucket/t", {setting_of("s3a"): DYNAMO}) == DYNAMO


@pytest.mark.parametrize("uri", ["/data/t", "file:/data/t", "ftp://host/t"])
def test_what_no_store_makes_safe_is_refused(uri: str) -> None:
    """Delta's own store of `file:` is not safe between processes, and ftp has none."""
    with pytest.raises(FileSystemUnsafeError):
        log_store_class(uri, {})
