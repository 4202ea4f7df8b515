"""Telemetry: informs other systems about runs that ended, as traces and as lineage.

`run_feed` follows the events of the store, on the leader. `traces` makes OpenTelemetry spans,
`lineage` OpenLineage events. Both need the packages of the extra `cbp[telemetry]`.
"""

from controller.telemetry.lineage import LineageExporter
from controller.telemetry.run_feed import (
    EndedRun,
    RunExporter,
    RunFeed,
    TelemetryPackagesMissingError,
)
from controller.telemetry.traces import TraceExporter

__all__ = [
    "EndedRun",
    "LineageExporter",
    "RunExporter",
    "RunFeed",
    "TelemetryPackagesMissingError",
    "TraceExporter",
]
