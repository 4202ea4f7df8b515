"""OpenTelemetry: a span for each run, with one child for each of its phases.

    run clicks.count                       cbp.dataflow, cbp.stage, cbp.epoch, cbp.run, ...
      start | plan | job | assemble | finish

A failed run has the status ERROR with the code of its error, and not its message, which can have
values of records. Spans are sent over OTLP/HTTP in batches; while the receiver is away, up to 2,048
wait, and later ones are dropped (both by the SDK). `OTEL_*` variables of the environment apply, for
example `OTEL_EXPORTER_OTLP_HEADERS` for a key.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from cbp.model.run.timeline import is_begin, timeline
from controller.run_exports.run_feed import EndedRun, TelemetryPackagesMissingError

_FLUSH_MILLISECONDS = 2_000


class TraceExporter:
    """Sends spans of runs.

    Args:
        endpoint: Base URL of an OTLP/HTTP receiver, such as `http://127.0.0.1:4318`.
        instance: The URL of this service, which identifies it among others.

    Raises `TelemetryPackagesMissingError`.
    """

    name = "traces"

    def __init__(self, endpoint: str, *, instance: str) -> None:
        try:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
        except ImportError as error:
            package = "opentelemetry-exporter-otlp-proto-http"
            raise TelemetryPackagesMissingError("CBP_OTLP_ENDPOINT", package) from error
        resource = Resource.create({"service.name": "cbp", "service.instance.id": instance})
        exporter = OTLPSpanExporter(endpoint=f"{endpoint.rstrip('/')}/v1/traces", timeout=5)
        self._provider: Any = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer: Any = self._provider.get_tracer("cbp")

    def export(self, ended: EndedRun) -> None:
        """See `RunExporter.export`."""
        from opentelemetry.trace import Status, StatusCode, set_span_in_context

        run = ended.run
        begin = _nanoseconds(run.started_at)
        end = max(begin, _nanoseconds(run.finished_at or run.started_at))
        span = self._tracer.start_span(
            f"run {run.dataflow}.{run.stage}", start_time=begin, attributes=_attributes(ended)
        )
        within = set_span_in_context(span)
        for phase in timeline(run.figures, (end - begin) / 1e9):
            child = self._tracer.start_span(
                phase.name, context=within, start_time=begin + int(phase.begin * 1e9)
            )
            child.end(end if phase.end is None else min(end, begin + int(phase.end * 1e9)))
        if run.error is not None:
            span.set_status(Status(StatusCode.ERROR, str(run.error.get("error_code", "unknown"))))
        span.end(end)

    def close(self) -> None:
        """See `RunExporter.close`."""
        self._provider.force_flush(_FLUSH_MILLISECONDS)
        self._provider.shutdown()


def _attributes(ended: EndedRun) -> dict[str, Any]:
    run = ended.run
    attributes: dict[str, Any] = {
        "cbp.dataflow": run.dataflow,
        "cbp.stage": run.stage,
        "cbp.members": list(ended.members),
        "cbp.epoch": run.epoch,
        "cbp.run": run.id,
        "cbp.attempt": run.attempt,
        "cbp.status": str(run.status),
        "cbp.increments_read": sum(map(len, run.read.values())),
    }
    figures = {name: value for name, value in run.figures.items() if not is_begin(name)}
    return attributes | {f"cbp.figures.{name}": value for name, value in figures.items()}


def _nanoseconds(moment: datetime) -> int:
    return int(moment.timestamp() * 1_000_000) * 1_000
