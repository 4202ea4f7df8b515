"""Exporters over real sockets: what a receiver of traces and of lineage gets for a run."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from cbp import DataflowBuilder
from cbp.model.run.intention import RunStatus
from controller.run_exports import (
    EndedRun,
    LineageExporter,
    TelemetryPackagesMissingError,
    TraceExporter,
)
from controller.store.base import RunRecord
from stages.flows.crawl_queue import crawl_queue
from stages.translators.latest import Latest
from stages.translators.orders_with_customers import OrdersWithCustomers
from tests.controller.http_sink import HttpSink

CUSTOMERS = "customer STRING, name STRING, country STRING"
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
FIGURES = {"begin_00_start": 0.0, "begin_01_job": 0.5, "begin_02_finish": 1.5, "groups": 3.0}
ERROR = {"error_code": "author_code", "message": "value s3cret of a record", "details": {}}


def ended(error: Any = None, folder: str = "/srv/t/crawl_queue") -> EndedRun:
    run = RunRecord(
        "r1",
        "crawl_queue",
        "count_in_links",
        4,
        1,
        RunStatus.FAILED if error else RunStatus.COMMITTED,
        {"links": [3, 4], "crawled": []},
        {},
        BEGIN,
        BEGIN + timedelta(seconds=2),
        FIGURES,
        error,
    )
    return EndedRun(run, crawl_queue(), folder, ("count_in_links",))


@pytest.fixture
def sink() -> Iterator[HttpSink]:
    made = HttpSink()
    yield made
    made.close()


def spans_of(sink: HttpSink) -> list[Any]:
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    requests = [ExportTraceServiceRequest.FromString(content) for content in sink.contents]
    return [
        span
        for request in requests
        for resource in request.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]


def test_a_run_is_a_span_with_a_child_for_each_phase(sink: HttpSink):
    """Times are those of the run, not of the export; figures are attributes."""
    exporter = TraceExporter(sink.url, instance="here")
    exporter.export(ended())
    exporter.close()
    spans = {span.name: span for span in spans_of(sink)}
    assert list(spans) == ["start", "job", "finish", "run crawl_queue.count_in_links"]
    assert sink.paths == ["/v1/traces"]
    run, begin = spans["run crawl_queue.count_in_links"], int(BEGIN.timestamp() * 1e9)
    assert (run.start_time_unix_nano, run.end_time_unix_nano) == (begin, begin + 2_000_000_000)
    job = spans["job"]
    assert job.parent_span_id == run.span_id
    assert (job.start_time_unix_nano - begin, job.end_time_unix_nano - begin) == (
        5 * 10**8,
        15 * 10**8,
    )
    attributes = {one.key: one.value for one in run.attributes}
    assert attributes["cbp.epoch"].int_value == 4
    assert attributes["cbp.increments_read"].int_value == 2
    assert attributes["cbp.figures.groups"].double_value == 3.0
    assert not any(name.startswith("cbp.figures.begin") for name in attributes)


def test_a_failed_run_has_the_code_of_its_error_and_no_value_of_a_record(sink: HttpSink):
    """In its trace."""
    exporter = TraceExporter(sink.url, instance="here")
    exporter.export(ended(ERROR))
    exporter.close()
    (run,) = [span for span in spans_of(sink) if span.name.startswith("run ")]
    assert run.status.message == "author_code"
    assert not any(b"s3cret" in content for content in sink.contents)


def test_a_failed_run_wrote_nothing(sink: HttpSink):
    """Its lineage has the code of its error, no output, and no value of a record."""
    exporter = LineageExporter(sink.url)
    exporter.export(ended(ERROR))
    exporter.close()
    (event,) = sink.bodies
    assert event["eventType"] == "FAIL"
    assert event["run"]["facets"]["errorMessage"]["message"] == "author_code"
    assert event["outputs"] == []
    assert b"s3cret" not in sink.contents[0]


def test_lineage_names_the_tables_that_were_read_and_written(sink: HttpSink):
    """Inputs without a new increment are left out; outputs are those of all stages that ran."""
    exporter = LineageExporter(sink.url, api_key="a key")
    exporter.export(ended())
    exporter.export(ended())
    exporter.close()
    first, again = sink.bodies
    assert sink.paths == ["/api/v1/lineage"] * 2
    assert sink.authorizations == ["Bearer a key"] * 2
    assert first["eventType"] == "COMPLETE"
    assert first["job"] == {"namespace": "cbp", "name": "crawl_queue.count_in_links", "facets": {}}
    assert first["run"]["runId"] == again["run"]["runId"]
    inputs = [(one["namespace"], one["name"]) for one in first["inputs"]]
    assert inputs == [("file", "/srv/t/crawl_queue/flows/extract_links.links")]
    names = [one["name"].removeprefix("/srv/t/crawl_queue/") for one in first["outputs"]]
    stage = crawl_queue().stages["count_in_links"].translator
    assert names == [
        *(f"flows/count_in_links.{output.name}" for output in stage.outputs),
        *(f"state/count_in_links.{state.name}" for state in stage.states),
    ]
    fields = first["inputs"][0]["facets"]["schema"]["fields"]
    schema = crawl_queue().flows()["extract_links.links"]
    assert [(one["name"], one["type"]) for one in fields] == [
        (column.name, str(column.type)) for column in schema.fields
    ]


def test_lineage_names_the_tables_that_were_looked_up(sink: HttpSink):
    """Each once, with its columns, beside the flows that were read; not for its writer."""
    flow = DataflowBuilder("shop")
    orders = flow.source("orders", "order BIGINT, customer STRING, total DOUBLE")
    rows = flow.source("rows", CUSTOMERS)
    keep = flow.stage("keep", Latest(CUSTOMERS, "customer"), rows=rows)
    for name in ("first", "second"):
        flow.stage(name, OrdersWithCustomers(), orders=orders, customers=keep.latest)
    run = replace(ended().run, dataflow="shop", stage="first", read={"orders": [1]})
    exporter = LineageExporter(sink.url)
    exporter.export(EndedRun(run, flow.build(), "/t/shop", ("first", "second")))
    run = replace(run, stage="keep", read={"rows": [1]})
    exporter.export(EndedRun(run, flow.build(), "/t/shop", ("keep",)))
    exporter.close()
    looked_up, wrote = sink.bodies
    names = [one["name"] for one in looked_up["inputs"]]
    assert names == ["/t/shop/sources/orders", "/t/shop/state/keep.latest"]
    fields = looked_up["inputs"][1]["facets"]["schema"]["fields"]
    assert ", ".join(f"{one['name']} {one['type']}" for one in fields) == CUSTOMERS
    assert names[1] in {one["name"] for one in wrote["outputs"]}
    assert [one["name"] for one in wrote["inputs"]] == ["/t/shop/sources/rows"]


def test_a_table_on_another_file_system_keeps_its_place(sink: HttpSink):
    """The namespace is the scheme and the host, as OpenLineage has it."""
    exporter = LineageExporter(sink.url)
    exporter.export(ended(folder="hdfs://names:8020/t/crawl_queue"))
    exporter.close()
    (dataset,) = sink.bodies[0]["inputs"]
    assert dataset["namespace"] == "hdfs://names:8020"
    assert dataset["name"] == "/t/crawl_queue/flows/extract_links.links"


@pytest.mark.parametrize(
    ("package", "make"),
    [
        ("opentelemetry.sdk.trace", lambda: TraceExporter("http://a", instance="i")),
        ("openlineage.client", lambda: LineageExporter("http://a")),
    ],
)
def test_a_receiver_without_its_packages_is_a_plain_error(monkeypatch, package, make):
    """The service says at its start what to install."""
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(TelemetryPackagesMissingError, match="cbp\\[telemetry\\]"):
        make()
