"""Errors of verification: why a dataflow cannot be verified, and the remedy."""

from __future__ import annotations

from collections.abc import Mapping

from cbp.errors import OperatingError
from cbp.model.verification import Split


class InputNotRetainedError(OperatingError):
    """An increment of a source is no longer kept, so tables cannot be recomputed."""

    code = "input_not_retained"
    retryable = False

    def __init__(self, dataflow: str, source: str, index: int) -> None:
        super().__init__(
            f"increment {index} of source {source!r} of {dataflow!r} is no longer kept, so the "
            "tables cannot be recomputed from scratch. Keep all input for as long as you want to "
            "verify: raise CBP_KEEP_INPUTS_HOURS, or `keep` of the source",
            dataflow=dataflow,
            source=source,
            index=index,
        )


class DataflowUnsettledError(OperatingError):
    """A dataflow whose epochs depend on time did not become idle in time."""

    code = "dataflow_unsettled"

    def __init__(self, dataflow: str, stages: Mapping[str, str]) -> None:
        waits = "; ".join(f"{stage}: {why}" for stage, why in stages.items()) or "new input"
        super().__init__(
            f"{dataflow!r} still has work to do ({waits}). The results of its stages depend on "
            "when they run, so verification must wait until no work is left: stop the input of "
            "the dataflow, or raise --time-limit",
            dataflow=dataflow,
            stages=dict(stages),
        )


class VerificationBusyError(OperatingError):
    """A verification is already under way; only one at a time may compete with the runs."""

    code = "verification_busy"

    def __init__(self, running: str, dataflow: str) -> None:
        super().__init__(
            f"verification {running} of {dataflow!r} is already under way; wait until it ends, or "
            "cancel it",
            verification=running,
            dataflow=dataflow,
        )


class VerificationInterruptedError(OperatingError):
    """The service ended while a verification was under way."""

    code = "verification_interrupted"

    def __init__(self, verification: str, dataflow: str) -> None:
        super().__init__(
            f"the service ended while verification {verification} of {dataflow!r} was under way; "
            "start it again",
            verification=verification,
            dataflow=dataflow,
        )


class VerificationTooLargeError(OperatingError):
    """The input is too large for the reference engine, which holds everything in memory."""

    code = "verification_too_large"
    retryable = False

    def __init__(self, dataflow: str, records: int, records_max: int) -> None:
        super().__init__(
            f"{dataflow!r} has at least {records:,} input records, but the reference engine takes "
            f"at most {records_max:,}: use the direct engine (--engine direct)",
            dataflow=dataflow,
            records=records,
            records_max=records_max,
        )


class PunctuationUnplacedError(OperatingError):
    """Frames of a flow were closed between increments that a recomputation splits differently."""

    code = "punctuation_unplaced"
    retryable = False

    def __init__(self, dataflow: str, flow: str, at: int, *, split: Split) -> None:
        if split == "at_once":
            advice = "Verify with --split increments"
        else:
            advice = (
                "No verification is possible, since increments of that flow depend on the start "
                "times of runs. In future, close frames of sources instead: "
                f"`cbp close {dataflow} SOURCE`"
            )
        super().__init__(
            f"the frames of flow {flow!r} of {dataflow!r} were closed just before increment {at}. "
            f"A recomputation splits {flow!r} into other increments and cannot close them there. "
            f"{advice}",
            dataflow=dataflow,
            flow=flow,
            at=at,
        )
