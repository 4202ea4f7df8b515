"""A location is a bucket and a folder in it: nothing else, and read by everybody in one way."""

from __future__ import annotations

from typing import Any

import pytest

from cbp import DataflowBuilder
from cbp.errors import DataflowInvalidError
from cbp.model.source.bucket_prefix import BucketPrefix
from cbp.sdk.document import dataflow_from_document
from stages.translators.count_per_key import CountPerKey


def sources(value: Any, format_: str = "jsonl", **more: Any) -> Any:
    """Return what a document's source becomes; all formats have the same columns."""
    source = {"schema": "line STRING", "format": format_, "location": value, **more}
    stages = {"one": {"translator": "count_per_key", "inputs": {"items": "s"}}}
    document = {"name": "d", "sources": {"s": source}, "stages": stages}
    return dataflow_from_document(document, lambda *_: CountPerKey("line STRING")).sources["s"]


@pytest.mark.parametrize("format_", ["jsonl", "csv", "parquet", "avro", "text", "xml"])
def test_a_source_of_any_format_of_files_may_have_a_location(format_: str):
    """In a document, and in Python."""
    assert sources("s3://bucket/a/b", format_).location == "s3://bucket/a/b"
    flow = DataflowBuilder("d")
    rows = flow.source("s", "line STRING", format=format_, location="s3://bucket/a/b")
    flow.stage("one", CountPerKey("line STRING"), items=rows)
    assert flow.build().sources["s"].location == "s3://bucket/a/b"


@pytest.mark.parametrize(
    ("location", "bucket", "prefix"),
    [
        ("s3://bucket/orders/", "bucket", "orders/"),
        ("s3://bucket/orders", "bucket", "orders/"),
        ("s3://my.bucket-1/a b/über=1/", "my.bucket-1", "a b/über=1/"),
        ("s3://bucket", "bucket", ""),
        ("s3://bucket/", "bucket", ""),
    ],
)
def test_a_location_names_the_objects_below_a_folder(location: str, bucket: str, prefix: str):
    """So `orders` has nothing of `orders-old`, with and without the last slash."""
    made = BucketPrefix.parse(location)
    assert (made.bucket, made.prefix) == (bucket, prefix)
    assert BucketPrefix.parse(str(made)) == made


@pytest.mark.parametrize(
    "location",
    [
        "bucket/orders",
        "s3:/bucket",
        "S3://bucket",
        "https://s3.example.org/bucket",
        "http://169.254.169.254/latest",
        "s3://canary:canary@bucket/orders",
        "s3://BUCKET/x",
        "s3://b",
        "s3://bucket:9000/x",
        "s3://bucket/a/../b",
        "s3://bucket/./b",
        "s3://bucket//b",
        "s3://bucket/a?versionId=1",
        "s3://bucket/a?token=canary",
        "s3://bucket/a#b",
        "s3://bucket/a\nb",
        "s3://bucket/" + "a" * 901,
        "arn:aws:s3:::bucket",
        7,
        {"bucket": "b"},
    ],
)
def test_anything_else_is_a_mistake_that_quotes_no_secret(location: Any):
    """No address of a service, no credentials, nothing that clients rewrite."""
    with pytest.raises(DataflowInvalidError) as caught:
        sources(location)
    assert {(one.code, one.where) for one in caught.value.mistakes} == {
        ("location_invalid", "sources.s.location")
    }
    assert "canary" not in str(caught.value.as_dict())


def test_a_delta_table_has_no_location():
    """It is named by its option, and is inside a folder."""
    with pytest.raises(DataflowInvalidError) as caught:
        sources("s3://bucket/x", "delta", options={"table": "t"})
    assert "location_invalid" in {one.code for one in caught.value.mistakes}


@pytest.mark.parametrize(
    ("inner", "outer", "expected"),
    [
        ("s3://bucket/orders/", "s3://bucket/orders/", True),
        ("s3://bucket/orders/2026", "s3://bucket/orders", True),
        ("s3://bucket/orders", "s3://bucket", True),
        ("s3://bucket/orders2", "s3://bucket/orders", False),
        ("s3://bucket", "s3://bucket/orders", False),
        ("s3://other/orders", "s3://bucket/orders", False),
    ],
)
def test_a_location_is_below_a_folder_and_below_no_name(inner: str, outer: str, expected: bool):
    """A prefix of the text alone says nothing."""
    assert BucketPrefix.parse(inner).is_below(BucketPrefix.parse(outer)) is expected
