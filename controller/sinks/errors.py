"""Errors of sinks. None of them stops a dataflow: the sink retries, or waits for a choice."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from cbp.errors import DiskFullError, OperatingError
from cbp.errors.counts import format_count
from cbp.errors.message_limits import listed

CHOICES = ("rewrite", "keep")

_STALE_MAX = 1_000
"""Most items that an error names, since it is stored with its sink and read at each tick."""


class SinkTargetError(OperatingError, code="sink_target_failed"):
    """The target of a sink cannot be written; nothing is lost, and the sink is retried."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"{path}: {why}", path=path, cause=why)


class SinkPlaceError(OperatingError, code="sink_place_refused", retryable=False):
    """The service's settings do not allow the target of a sink."""

    def __init__(self, where: str, why: str) -> None:
        super().__init__(f"{where}: {why}", where=where, cause=why)


class SinkForeignError(OperatingError, code="sink_target_foreign", retryable=False):
    """The target of a sink has another owner, or another program has changed it."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"nothing was written to {path}: {why}", path=path, cause=why)


class SinkRolledBackError(OperatingError, code="sink_rolled_back", retryable=False):
    """A roll-back undid increments that a sink had published; the sink waits for a choice."""

    def __init__(self, sink: str, first: int, stale: Sequence[str]) -> None:
        super().__init__(
            f"sink {sink!r} published increments from {first} on, which a roll-back undid. In its "
            f"target {format_count(len(stale), 'item')} {'is' if len(stale) == 1 else 'are'} no "
            f"longer correct ({listed([*stale])}). Choose: `cbp sinks resume DATAFLOW {sink} "
            "--rewrite` removes them and publishes their replacements, and the same command with "
            "--keep leaves them and continues",
            sink=sink,
            first=first,
            stale=[*stale[:_STALE_MAX]],
            count=len(stale),
        )


class SinkGapError(OperatingError, code="sink_gap", retryable=False):
    """Increments were removed from a flow before a sink had published them."""

    def __init__(self, sink: str, next_: int, oldest: int) -> None:
        super().__init__(
            f"sink {sink!r} must publish increment {next_} next, but the flow now begins at "
            f"increment {oldest}, since older increments were removed, or their stage was "
            "rebuilt. The sink has missed the records in between. `cbp sinks resume DATAFLOW "
            f"{sink} --keep` continues after the gap",
            sink=sink,
            next=next_,
            oldest=oldest,
        )


class SinkDeliveryError(OperatingError, code="sink_delivery_failed"):
    """A webhook did not accept a delivery, which is sent again with the same id."""

    def __init__(self, sink: str, delivery: str, why: str) -> None:
        super().__init__(
            f"delivery {delivery} of sink {sink!r} failed: {why}. The service sends it again with "
            "the same id",
            sink=sink,
            delivery=delivery,
            cause=why,
        )


class SinkRefusedError(OperatingError, code="sink_delivery_refused", retryable=False):
    """A webhook refused a delivery permanently; an operator can skip it."""

    def __init__(self, sink: str, delivery: str, status: int) -> None:
        super().__init__(
            f"delivery {delivery} of sink {sink!r} was refused with status {status}, and later "
            "deliveries wait. Fix the receiver, the address or the secret, then run `cbp sinks "
            f"retry DATAFLOW {sink}`; `cbp sinks resume DATAFLOW {sink} --keep` skips this "
            "delivery",
            sink=sink,
            delivery=delivery,
            status=status,
        )


class SinkSecretError(OperatingError, code="sink_secret_missing"):
    """The secret that signs the requests of a webhook cannot be read."""

    def __init__(self, secret: str, path: str, why: str) -> None:
        super().__init__(
            f"the secret {secret!r} cannot be read from {path}: {why}. Store the secret in that "
            "file, readable only by the service's user",
            secret=secret,
            path=path,
        )


class SinkChoiceError(OperatingError, code="sink_choice_refused", retryable=False):
    """A choice was given to a sink that does not wait for one."""

    def __init__(self, sink: str, why: str) -> None:
        super().__init__(f"sink {sink!r} {why}", sink=sink)


class SinkFailedError(OperatingError, code="sink_failed"):
    """A sink failed with an unexpected error; other sinks and the dataflow continue."""

    def __init__(self, sink: str, cause: str) -> None:
        super().__init__(
            f"sink {sink!r} failed: {cause}. The service retries it; the log has the traceback",
            sink=sink,
            cause=cause,
        )


@contextmanager
def target_errors(path: str) -> Iterator[None]:
    """Turn errors of the operating system about a target into coded errors."""
    try:
        yield
    except OSError as error:
        if DiskFullError.is_disk_full(error):
            raise DiskFullError(path) from error
        raise SinkTargetError(path, error.strerror or str(error)) from error
