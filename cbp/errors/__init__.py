"""Every error of the library, as a tree; imports nothing else of cbp.

    CbpError                      code, details, retryable
    |- DefinitionError            an author's mistake, found at registration
    |  '- DataflowInvalidError    all mistakes of one dataflow at once
    |     |- ChangeRefusedError   a new version would lose or change what is there
    |     '- CodeDriftedError     what is installed is not what was registered
    |- AuthorCodeError            author's code failed while a run used it
    |  |- DecisionInvalidError    a Runnable or FrameBy answered what cannot be done
    |  |  |- MemoInvalidError     its memo is not JSON
    |  |  |- AlignmentError       framing keys of an aligned input go backwards
    |  |  |- FramingKeyError      a FrameBy function gave what is no framing key
    |  |  |- FramesScatteredError an increment's framing keys change too often
    |  |  |- IncrementAbsentError  a Runnable reads what does not wait there
    |  |  '- RemovalRefusedError   a Runnable removes what it must not
    |  |- DestinationInvalidError  a RouteBy gave what is no destination
    |  |  |- RouteKeyError         no key of the stage: unhashable, or of other types
    |  |  '- RouteFlowError        an `ALL` names a flow that is not there
    |  |- AnswerLateError         a Runnable or FrameBy did not answer in time
    |  '- CycleUndrainedError     a cycle feeds itself without end
    |- OperatingError             the world failed: disk, network, a foreign writer
    |  |- TableForeignError       a folder holds something that is not our table
    |  |  |- PlacementDiffersError  its records lie by another hash or number of buckets
    |  |  '- TableReleasedError   its fence was taken away
    |  |- RepairImpossibleError   what a table showed cannot be brought back
    |  |- VersionGoneError        a version of a table is not kept any more
    |  |- IncrementCollectedError  an increment is older than its flow is kept
    |  |- VersionUnreadableError  one that was written before its stage was changed
    |  |- TableFeatureError       a table uses a feature we refuse to write
    |  |- ForeignWriterError      somebody else wrote into a managed table
    |  |- FileSystemUnsafeError   nothing there keeps two writers of one name apart
    |  |- LogConflictError        another controller wrote the same log entry
    |  |- LeaseLostError          this controller does not lead (any more)
    |  |- DiskFullError           no space left while writing
    |  |- AddressSpaceError       a task may neither map nor hold what it put aside
    |  |- IncrementDamagedError   an increment's file is missing or has other rows
    |  |- RunCancelledError       the run was cancelled
    |  |- RunGaveWayError         it was cancelled for another dataflow's sake, and runs again
    |  |- DataflowBusyError       a dataflow is being amended, or a run of it does not end
    |  |- RollbackImpossibleError  a dataflow cannot be taken back that far
    |  |- RebuildIncompleteError  some dataflows could not be brought back from their folders
    |  |- SparkSettingError       Spark does not check what a retried stage gives
    |  |- TimeLimitError          the author's code did not end in time
    |  |- NotFoundError           a name, key or table that does not exist
    |  |- AlreadyExistsError      a name that is taken
    |  '- FlowUnframedError       nobody frames the flow that is to be closed
    '- InvariantError             our bug or corrupt data: the stage stops

`code` is stable and snake_case; `details` holds JSON values without secrets;
`retryable` says whether trying the same call again can help. A class takes
the ids and writes the sentence. This package knows no HTTP. One module per area; who
uses an error imports it from here.
"""

from cbp.errors.author import (
    AlignmentError,
    AnswerLateError,
    AuthorCodeError,
    CycleUndrainedError,
    DecisionInvalidError,
    DestinationInvalidError,
    FramesScatteredError,
    FramingKeyError,
    IncrementAbsentError,
    MemoInvalidError,
    RemovalRefusedError,
    RouteFlowError,
    RouteKeyError,
)
from cbp.errors.base import CbpError, InvariantError, error_from_dict
from cbp.errors.definition import (
    ChangeRefusedError,
    CodeDriftedError,
    DataflowInvalidError,
    DefinitionError,
    Mistake,
)
from cbp.errors.operating import (
    AddressSpaceError,
    AlreadyExistsError,
    DataflowBusyError,
    DiskFullError,
    FlowUnframedError,
    LeaseLostError,
    LogConflictError,
    NotFoundError,
    OperatingError,
    RebuildIncompleteError,
    RollbackImpossibleError,
    RunCancelledError,
    RunGaveWayError,
    SparkSettingError,
    TimeLimitError,
)
from cbp.errors.tables import (
    FileSystemUnsafeError,
    ForeignWriterError,
    IncrementCollectedError,
    IncrementDamagedError,
    PlacementDiffersError,
    RepairImpossibleError,
    TableFeatureError,
    TableForeignError,
    TableReleasedError,
    VersionGoneError,
    VersionUnreadableError,
)

__all__ = [
    "AddressSpaceError",
    "AlignmentError",
    "AlreadyExistsError",
    "AnswerLateError",
    "AuthorCodeError",
    "CbpError",
    "ChangeRefusedError",
    "CodeDriftedError",
    "CycleUndrainedError",
    "DataflowBusyError",
    "DataflowInvalidError",
    "DecisionInvalidError",
    "DefinitionError",
    "DestinationInvalidError",
    "DiskFullError",
    "FileSystemUnsafeError",
    "FlowUnframedError",
    "ForeignWriterError",
    "FramesScatteredError",
    "FramingKeyError",
    "IncrementAbsentError",
    "IncrementCollectedError",
    "IncrementDamagedError",
    "InvariantError",
    "LeaseLostError",
    "LogConflictError",
    "MemoInvalidError",
    "Mistake",
    "NotFoundError",
    "OperatingError",
    "PlacementDiffersError",
    "RebuildIncompleteError",
    "RemovalRefusedError",
    "RepairImpossibleError",
    "RollbackImpossibleError",
    "RouteFlowError",
    "RouteKeyError",
    "RunCancelledError",
    "RunGaveWayError",
    "SparkSettingError",
    "TableFeatureError",
    "TableForeignError",
    "TableReleasedError",
    "TimeLimitError",
    "VersionGoneError",
    "VersionUnreadableError",
    "error_from_dict",
]
