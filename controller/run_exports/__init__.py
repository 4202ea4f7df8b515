"""Run exports: inform other systems about runs that ended, as traces and as lineage (telemetry).

`run_feed` follows the events of the store, on the leader. `traces` makes OpenTelemetry spans,
`lineage` OpenLineage events. Both need the packages of the extra `cbp[telemetry]`.
"""

from controller.run_exports.lineage import LineageExporter
from controller.run_exports.run_feed import (
    EndedRun,
    RunExporter,
    RunFeed,
    TelemetryPackagesMissingError,
)
from controller.run_exports.traces import TraceExporter

__all__ = [
    "EndedRun",
    "LineageExporter",
    "RunExporter",
    "RunFeed",
    "TelemetryPackagesMissingError",
    "TraceExporter",
]
