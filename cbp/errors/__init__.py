"""The tree of coded errors that the library raises; imports nothing else of cbp.

    CbpError                      code, details, retryable
    |- DefinitionError            an author's mistake, found at registration
    |- DataflowInvalidError       all mistakes of one dataflow at once
    |  |- ChangeRefusedError      a new version would lose or change records
    |  '- CodeDriftedError        the loaded code is not the registered code
    |- CodeNotLoadedError         a worker has loaded other code than the service
    |- AuthorCodeError            author's code failed while a run used it
    |  |- DecisionInvalidError    a Runnable or FrameBy gave an invalid answer
    |  |  |- MemoInvalidError     its memo is not JSON
    |  |  |- AlignmentError       framing keys of an aligned input go backwards
    |  |  |- FramingKeyError      a FrameBy function gave no valid framing key
    |  |  |- FramesScatteredError an increment's framing keys change too often
    |  |  |- IncrementAbsentError  a Runnable reads an increment that is not queued
    |  |  '- RemovalRefusedError   a Runnable removes an increment that it must not
    |  |- DestinationInvalidError  a RouteBy gave no valid destination
    |  |  |- RouteKeyError         not a key of the stage: unhashable, or other types
    |  |  '- RouteFlowError        an `ALL` names a flow that does not exist
    |  |- AnswerLateError         a Runnable or FrameBy did not answer in time
    |  |- RecordsReturnedError    a translate returned records, which are lost
    |  |- InputReadTwiceError     a flow of a group was iterated a second time
    |  |- RunContextHiddenError   `run` was asked for where the code does not show it
    |  |- StateKeyForeignError    state of another key was emitted without `.remote`
    |  |- StateExpiresRemoteError `.remote` was called for a state that expires
    |  |- StateKeptRemoteError    `.remote` was called for a state that is kept
    |  |- LookupSeveralError      a look-up for one record found several
    |  |- OutputKeyForeignError   a group emitted a record of another key to a keyed output
    |  |- OutputKeyTwiceError     a group emitted two records of one key of an output
    |  |- ViewKeyTwiceError       a group emitted two records of one key of a view
    |  |- ViewRemoteError         a view's record was emitted by another group than its own
    |  |- SetAsideFullError       more records fail than the stage may set aside
    |  |- AuthorProcessError      the code crashed the process that called it
    |  |- AuthorStateError        a translator keeps something on itself between calls
    |  '- CycleUndrainedError     a cycle feeds itself without end
    |- OperatingError             the world failed: disk, network, a foreign writer
    |  |- TableForeignError       a folder holds something that is not our table
    |  |  |- PlacementDiffersError  a state table has another hash, key or number of buckets
    |  |  '- TableReleasedError   the table's fence was removed
    |  |- RepairImpossibleError   a table cannot be restored to what it showed before
    |  |- LookupTooLargeError     a table that every group is given has too many records
    |  |- VersionGoneError        a version of a table is no longer kept
    |  |- IncrementCollectedError  an increment is no longer kept
    |  |- VersionUnreadableError  a version was written before its stage was changed
    |  |- TableFeatureError       a table uses a Delta feature that we refuse to write
    |  |- ForeignWriterError      another program wrote into a managed table
    |  |- FileSystemUnsafeError   the file system cannot stop two writers of one name
    |  |- LogConflictError        another controller wrote the same log entry
    |  |- LeaseLostError          this controller does not lead, or no longer
    |  |- DiskFullError           no space left while writing
    |  |- AddressSpaceError       a task can neither map nor hold its spilled records
    |  |- RunTooLargeError        a loop or call of a whole run would hold too many bytes
    |  |- RunCancelledError       the run was cancelled
    |  |- RunGaveWayError         it was cancelled for another dataflow, and runs again
    |  |- RunStackUnseenError     where a run is cannot be seen, in Spark's workers
    |  |- DataflowBusyError       a dataflow is being amended, or a run of it does not end
    |  |- CorrectionUnfinishedError  a correction is prepared, and finished later
    |  |- DataflowFailedError     an unforeseen failure in one dataflow
    |  |- RollbackImpossibleError  a dataflow cannot be rolled back that far
    |  |- ReplaceRefusedError     a file of a source cannot be replaced or retracted
    |  |- ReplacementUnfollowedError  a stage waits for a rebuild, since a file was replaced
    |  |- RecordsAbsentError      what a replacement takes back is not among what is kept
    |  |- RebuildIncompleteError  some dataflows could not be rebuilt from their folders
    |  |- SparkSettingError       Spark does not check the records of a retried stage
    |  |- SparkJobError           Spark could not do a run's job
    |  |- WorkerEndedError        a worker ended without an answer
    |  |- SparkLostError          Spark does not answer, or has stopped
    |  |- SparkUnstartedError     Spark could not be started
    |  |- EngineStartingError     the engine is starting
    |  |- SparkUnauthenticatedError  a cluster's master without a secret
    |  |- TimeLimitError          the author's code did not end in time
    |  |- NotFoundError           a name, key or table does not exist
    |  |- AlreadyExistsError      a name is taken
    |  |- DataflowsTooManyError   the service has as many dataflows as it may have
    |  '- FlowUnframedError       no stage frames the flow that is to be closed
    '- InvariantError             our bug or corrupt data: the stage stops
       '- FileDamagedError        a file is not what was written
          |- FileLostError        a file is gone, though something names it
          '- IncrementDamagedError  an increment's file is missing or has other rows

`code` is stable and snake_case. `details` holds JSON values without secrets. `retryable` says
whether the same call can succeed later. An error's constructor takes ids and builds the message.
This package knows no HTTP. It has one module per area; import every error from here.
"""

from cbp.errors.author import (
    AlignmentError,
    AnswerLateError,
    AuthorCodeError,
    AuthorMisuse,
    AuthorProcessError,
    AuthorStateError,
    AuthorUnsendableError,
    CycleUndrainedError,
    DecisionInvalidError,
    DestinationInvalidError,
    FramesScatteredError,
    FramingKeyError,
    IncrementAbsentError,
    InputReadTwiceError,
    LookupSeveralError,
    MemoInvalidError,
    OutputKeyForeignError,
    OutputKeyTwiceError,
    RecordsReturnedError,
    RemovalRefusedError,
    RouteFlowError,
    RouteKeyError,
    RunContextHiddenError,
    SetAsideFullError,
    StateExpiresRemoteError,
    StateKeptRemoteError,
    StateKeyForeignError,
    ViewKeyTwiceError,
    ViewRemoteError,
)
from cbp.errors.author_cause import author_cause, author_line, is_authors, text_of
from cbp.errors.base import CbpError, InvariantError, error_from_dict, format_unknown
from cbp.errors.damage import (
    FileDamagedError,
    FileLostError,
    IncrementDamagedError,
    Place,
    own_name,
    place_of,
)
from cbp.errors.definition import (
    ChangeRefusedError,
    CodeDriftedError,
    CodeNotLoadedError,
    DataflowInvalidError,
    DefinitionError,
    Mistake,
)
from cbp.errors.operating import (
    AddressSpaceError,
    AlreadyExistsError,
    CorrectionUnfinishedError,
    DataflowBusyError,
    DataflowFailedError,
    DataflowsTooManyError,
    DiskFullError,
    EngineStartingError,
    FlowUnframedError,
    LeaseLostError,
    LogConflictError,
    NotFoundError,
    OperatingError,
    RebuildIncompleteError,
    RecordsAbsentError,
    ReplacementUnfollowedError,
    ReplaceRefusedError,
    RollbackImpossibleError,
    RunCancelledError,
    RunGaveWayError,
    RunStackUnseenError,
    RunTooLargeError,
    SparkJobError,
    SparkLostError,
    SparkSettingError,
    SparkUnauthenticatedError,
    SparkUnstartedError,
    TimeLimitError,
    WorkerEndedError,
)
from cbp.errors.tables import (
    FileSystemUnsafeError,
    ForeignWriterError,
    IncrementCollectedError,
    LookupTooLargeError,
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
    "AuthorMisuse",
    "AuthorProcessError",
    "AuthorStateError",
    "AuthorUnsendableError",
    "CbpError",
    "ChangeRefusedError",
    "CodeDriftedError",
    "CodeNotLoadedError",
    "CorrectionUnfinishedError",
    "CycleUndrainedError",
    "DataflowBusyError",
    "DataflowFailedError",
    "DataflowInvalidError",
    "DataflowsTooManyError",
    "DecisionInvalidError",
    "DefinitionError",
    "DestinationInvalidError",
    "DiskFullError",
    "EngineStartingError",
    "FileDamagedError",
    "FileLostError",
    "FileSystemUnsafeError",
    "FlowUnframedError",
    "ForeignWriterError",
    "FramesScatteredError",
    "FramingKeyError",
    "IncrementAbsentError",
    "IncrementCollectedError",
    "IncrementDamagedError",
    "InputReadTwiceError",
    "InvariantError",
    "LeaseLostError",
    "LogConflictError",
    "LookupSeveralError",
    "LookupTooLargeError",
    "MemoInvalidError",
    "Mistake",
    "NotFoundError",
    "OperatingError",
    "OutputKeyForeignError",
    "OutputKeyTwiceError",
    "Place",
    "PlacementDiffersError",
    "RebuildIncompleteError",
    "RecordsAbsentError",
    "RecordsReturnedError",
    "RemovalRefusedError",
    "RepairImpossibleError",
    "ReplaceRefusedError",
    "ReplacementUnfollowedError",
    "RollbackImpossibleError",
    "RouteFlowError",
    "RouteKeyError",
    "RunCancelledError",
    "RunContextHiddenError",
    "RunGaveWayError",
    "RunStackUnseenError",
    "RunTooLargeError",
    "SetAsideFullError",
    "SparkJobError",
    "SparkLostError",
    "SparkSettingError",
    "SparkUnauthenticatedError",
    "SparkUnstartedError",
    "StateExpiresRemoteError",
    "StateKeptRemoteError",
    "StateKeyForeignError",
    "TableFeatureError",
    "TableForeignError",
    "TableReleasedError",
    "TimeLimitError",
    "VersionGoneError",
    "VersionUnreadableError",
    "ViewKeyTwiceError",
    "ViewRemoteError",
    "WorkerEndedError",
    "author_cause",
    "author_line",
    "error_from_dict",
    "format_unknown",
    "is_authors",
    "own_name",
    "place_of",
    "text_of",
]
