"""A typed client of the service, for notebooks and programs.

    from cbp.client import Client

    with Client("http://127.0.0.1:8420") as service:
        for row in service.state("clicks", "count.counts"):
            print(row["url"], row["n"])

Without an address and a token it finds those that the commands find (`cbp.client.address`). Errors
are in `cbp.client.errors`; `cbp.client.rest` sends requests that have no method here.
"""

from cbp.client.answers import (
    BulkItem,
    Claim,
    Column,
    Correction,
    CorrectionPreview,
    Dataflow,
    DataflowDetail,
    DataflowFreshness,
    Decided,
    Difference,
    DifferingKey,
    File,
    Freshness,
    GiveBackJob,
    GivenBack,
    Increment,
    KeyPreview,
    Moment,
    RebuildJob,
    Replaced,
    Rollback,
    RollbackJob,
    RollbackPlan,
    Run,
    SetAside,
    Snapshot,
    SnapshotTable,
    Source,
    Stage,
    TableDifference,
    TableVerdict,
    Validation,
    Verification,
)
from cbp.client.client import Client
from cbp.client.errors import (
    AccessRefusedError,
    ConflictRefusedError,
    RequestRefusedError,
    ResourceMissingError,
    ServiceBusyError,
    ServiceFailedError,
    ServiceProblemError,
    ServiceUnreachableError,
    StagesStoppedError,
    TokenMissingError,
    WaitEndedError,
)
from cbp.client.pages import Pages, Rows
from cbp.client.query_result import QueryResult
from cbp.client.rest import RestClient, Retries

__all__ = [
    "AccessRefusedError",
    "BulkItem",
    "Claim",
    "Client",
    "Column",
    "ConflictRefusedError",
    "Correction",
    "CorrectionPreview",
    "Dataflow",
    "DataflowDetail",
    "DataflowFreshness",
    "Decided",
    "Difference",
    "DifferingKey",
    "File",
    "Freshness",
    "GiveBackJob",
    "GivenBack",
    "Increment",
    "KeyPreview",
    "Moment",
    "Pages",
    "QueryResult",
    "RebuildJob",
    "Replaced",
    "RequestRefusedError",
    "ResourceMissingError",
    "RestClient",
    "Retries",
    "Rollback",
    "RollbackJob",
    "RollbackPlan",
    "Rows",
    "Run",
    "ServiceBusyError",
    "ServiceFailedError",
    "ServiceProblemError",
    "ServiceUnreachableError",
    "SetAside",
    "Snapshot",
    "SnapshotTable",
    "Source",
    "Stage",
    "StagesStoppedError",
    "TableDifference",
    "TableVerdict",
    "TokenMissingError",
    "Validation",
    "Verification",
    "WaitEndedError",
]
