"""OpenLineage: informs another service which tables each run read and wrote.

The lineage that the page and REST show is `controller.loop.reading.lineage`.

One event per run, `COMPLETE` or `FAIL`, posted to `<url>/api/v1/lineage`. The job is
`<dataflow>.<stage>` in the namespace `cbp`. A dataset is a table's folder: sources, outputs of
stages, and states. Inputs are the flows that the run read increments of, and the tables that its
stages look up. The run's id is a UUID made of ours, so that an event that is sent twice names one
run. A failed run has the code of its error, and not its message, which can have values of records.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from itertools import chain
from typing import Any
from urllib.parse import urlsplit

from cbp.engine.storage.table_names import flow_table, source_folder, state_table
from cbp.model.flow.schema import Schema
from controller.run_exports.run_feed import EndedRun, TelemetryPackagesMissingError

NAMESPACE = "cbp"
PRODUCER = "urn:cbp:service"
_RUN_IDS = uuid.uuid5(uuid.NAMESPACE_URL, PRODUCER)
_SECONDS_MAX = 5.0


class LineageExporter:
    """Posts events of runs; the API key is sent as a bearer token.

    Raises `TelemetryPackagesMissingError`.
    """

    name = "lineage"

    def __init__(self, url: str, *, api_key: str = "") -> None:
        try:
            from openlineage.client import OpenLineageClient
            from openlineage.client.transport.http import (
                ApiKeyTokenProvider,
                HttpConfig,
                HttpTransport,
                TokenProvider,
            )
        except ImportError as error:
            package = "openlineage-python"
            raise TelemetryPackagesMissingError("CBP_OPENLINEAGE_URL", package) from error
        auth = ApiKeyTokenProvider({"apiKey": api_key}) if api_key else TokenProvider({})
        # One try: a receiver that is away must not keep the next runs waiting.
        config = HttpConfig(url=url, timeout=_SECONDS_MAX, retry={"total": 0}, auth=auth)
        self._client: Any = OpenLineageClient(transport=HttpTransport(config))

    def export(self, ended: EndedRun) -> None:
        """See `RunExporter.export`."""
        from openlineage.client.event_v2 import (
            InputDataset,
            Job,
            OutputDataset,
            Run,
            RunEvent,
            RunState,
        )
        from openlineage.client.facet_v2 import error_message_run

        run = ended.run
        facets: dict[str, Any] = {}
        if run.error is not None:
            code = str(run.error.get("error_code", "unknown"))
            facets["errorMessage"] = error_message_run.ErrorMessageRunFacet(code, "python")
        store, base = _place(ended.folder)

        def described(kind: Any, tables: Iterator[tuple[str, Schema]]) -> list[Any]:
            return [
                kind(store, f"{base}/{name}", facets=_schema(columns)) for name, columns in tables
            ]

        self._client.emit(
            RunEvent(
                eventTime=(run.finished_at or run.started_at).isoformat(),
                producer=PRODUCER,
                run=Run(str(uuid.uuid5(_RUN_IDS, run.id)), facets),
                job=Job(NAMESPACE, f"{run.dataflow}.{run.stage}"),
                eventType=RunState.FAIL if run.error is not None else RunState.COMPLETE,
                inputs=described(InputDataset, _inputs(ended)),
                outputs=[] if run.error is not None else described(OutputDataset, _outputs(ended)),
            )
        )

    def close(self) -> None:
        """See `RunExporter.close`."""
        self._client.close(_SECONDS_MAX)


def _inputs(ended: EndedRun) -> Iterator[tuple[str, Schema]]:
    """Yield the tables that the leader read, those that were looked up, and their columns."""
    dataflow, run = ended.dataflow, ended.run
    schemas = dataflow.flows()
    wiring = dataflow.stages[run.stage].wiring
    for flow in dict.fromkeys(wiring[name] for name, read in run.read.items() if read):
        stage, _, output = flow.partition(".")
        yield flow_table(stage, output) if output else source_folder(flow), schemas[flow]
    tables = dataflow.tables()
    members = (dataflow.stages[member].lookups.values() for member in ended.members)
    for table in dict.fromkeys(chain.from_iterable(members)):
        stage, _, state = table.partition(".")
        yield state_table(stage, state), tables[table][1].schema


def _outputs(ended: EndedRun) -> Iterator[tuple[str, Schema]]:
    """Yield the tables that the stages wrote, and their columns."""
    for member in ended.members:
        translator = ended.dataflow.stages[member].translator
        for output in translator.outputs:
            yield flow_table(member, output.name), output.schema
        for state in translator.states:
            yield state_table(member, state.name), state.schema


def _schema(schema: Schema) -> dict[str, Any]:
    from openlineage.client.facet_v2 import schema_dataset

    fields = [
        schema_dataset.SchemaDatasetFacetFields(name=field.name, type=str(field.type))
        for field in schema.fields
    ]
    return {"schema": schema_dataset.SchemaDatasetFacet(fields)}


def _place(folder: str) -> tuple[str, str]:
    """Return the namespace and the path of a folder or URI, as OpenLineage names files."""
    parts = urlsplit(folder)
    if parts.scheme:
        return f"{parts.scheme}://{parts.netloc}", parts.path.rstrip("/")
    return "file", folder.rstrip("/")
