"""Decides which alerts apply to the dataflows right now; pure.

Every alert says what happened, to which dataflow, and what a person can do about it. A failure that
ends by itself within a minute is not reported: `controller.alerts.notices` waits before it sends.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from cbp.errors.counts import format_count

AlertKind = Literal[
    "stopped", "broken", "retrying", "late", "quarantine", "set_aside", "rebuild", "disk", "test"
]
HealthState = Literal["ok", "paused", "retrying", "stopped", "broken"]
Severity = Literal["critical", "warning"]


@dataclass(frozen=True, slots=True)
class RebuildHealth:
    """A rebuild that needs a person.

    It failed, and `error` says why in words; or its tables have been ready to be swapped in for
    `seconds`.
    """

    status: Literal["failed", "ready"]
    seconds: float = 0.0
    error: str = ""


@dataclass(frozen=True, slots=True)
class DrainHealth:
    """A dataflow that takes in no files, although some wait in its drop folders.

    Attributes:
        status: `draining` or `drained`.
        seconds: For how long the first of these files has waited.
    """

    status: str
    seconds: float


@dataclass(frozen=True, slots=True)
class DataflowHealth:
    """The health of one dataflow.

    Attributes:
        reason: Why it is not `ok`, in words; names the stages.
        lag_seconds: Age of the oldest increment that a stage has not processed; `None` if none
            waits.
        paused_stages: Stages that an operator paused, and that have input.
        rebuild: The newest rebuild, if it failed or waits for its swap.
        drain: Its drain, if files wait for the end of the drain.
    """

    dataflow: str
    state: HealthState
    reason: str = ""
    lag_seconds: float | None = None
    paused_stages: tuple[str, ...] = ()
    rebuild: RebuildHealth | None = None
    drain: DrainHealth | None = None
    quarantined: Mapping[str, int] = field(default_factory=dict)
    set_aside: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Alert:
    """Something that a person should look at.

    Attributes:
        dataflow: `""` if it is about the service itself.
        key: Two alerts with one key are the same; the later one has newer words.
        size: Rises as it gets worse; an alert whose size rises is sent again.
        summary: One sentence that says what happened.
    """

    key: str
    kind: AlertKind
    severity: Severity
    dataflow: str
    summary: str
    detail: str
    action: str
    size: int = 0


def alerts_of(
    healths: Iterable[DataflowHealth], *, lag_seconds: float, others: Iterable[Alert] = ()
) -> tuple[Alert, ...]:
    """Return all alerts, by key.

    Args:
        lag_seconds: A dataflow whose oldest increment waits for longer is late, and a paused or
            drained one whose input waits for `PAUSE_FACTOR` times as long; 0 means none is.
        others: Alerts about the service itself.
    """
    alerts = (alert for health in healths for alert in _of_dataflow(health, lag_seconds))
    return tuple(sorted((*alerts, *others), key=lambda alert: alert.key))


PAUSE_FACTOR = 4
"""Input of a paused or drained dataflow may wait this many times longer before an alert."""

SWAP_WAITS_SECONDS = 3_600
"""An alert reminds of the swap if the tables of a rebuild have been ready for longer than this."""

_OF_STATE: Mapping[HealthState, tuple[AlertKind, Severity, str, str]] = {
    "stopped": (
        "stopped",
        "critical",
        "{0} has stopped: one of its stages needs an operator",
        "`cbp status {0}` shows the error; fix its cause, then run `cbp retry {0} STAGE`",
    ),
    "broken": (
        "broken",
        "critical",
        "{0} cannot be loaded",
        "`cbp status {0}` shows the cause; if a package is missing, install it again",
    ),
    "retrying": (
        "retrying",
        "warning",
        "{0} fails, and the service retries it",
        "wait for the retry; if it fails, run `cbp doctor` and `cbp status {0}`",
    ),
}
"""Kind, severity, summary and action of the alert about a state."""


def _of_dataflow(health: DataflowHealth, lag_seconds: float) -> Iterable[Alert]:
    name = health.dataflow
    if health.state in _OF_STATE:
        kind, severity, summary, action = _OF_STATE[health.state]
        words = (summary.format(name), health.reason, action.format(name))
        yield Alert(f"{kind}:{name}", kind, severity, name, *words)
    yield from _late(health, lag_seconds)
    yield from _of_drain(name, health.drain, lag_seconds * PAUSE_FACTOR)
    yield from _of_rebuild(name, health.rebuild)
    for source, count in health.quarantined.items():
        if count:
            yield Alert(
                f"quarantine:{name}/{source}",
                "quarantine",
                "warning",
                name,
                f"source {source} of {name} has {format_count(count, 'file')} in quarantine",
                "no table has the records of these files; other files are processed",
                f"`cbp quarantine list {name} {source}` shows the reasons; correct the files, "
                "then run `cbp quarantine readmit`",
                size=count,
            )
    for stage, count in health.set_aside.items():
        if count:
            yield Alert(
                f"set_aside:{name}/{stage}",
                "set_aside",
                "warning",
                name,
                f"stage {stage} of {name} has set aside {format_count(count, 'record')}",
                "the code of the stage fails on these records, so no table has them; other groups "
                "are processed",
                f"`cbp set-aside {name} {stage}` shows the errors; fix the code and register it, "
                f"then run `cbp give-back {name} {stage}`",
                size=count,
            )


def _late(health: DataflowHealth, lag_seconds: float) -> Iterable[Alert]:
    """Yield an alert if input waits for too long: a pause is intended, but can be forgotten."""
    name, is_paused = health.dataflow, health.state == "paused"
    limit = lag_seconds * PAUSE_FACTOR if is_paused else lag_seconds
    if not lag_seconds or (health.lag_seconds or 0) <= limit:
        return
    what, why = "late", health.reason or "the stages run, but do not keep up"
    action = f"`cbp status {name}` shows where increments wait, `cbp runs` how long runs take"
    if is_paused:
        what, why = "paused", "no run starts until an operator resumes the dataflow"
        action = f"`cbp resume {name}`, unless the pause is still needed"
    elif health.paused_stages and not health.reason:
        stages = ", ".join(health.paused_stages)
        why = f"an operator paused {stages}, so the input that waits there is not processed"
        action = f"`cbp resume {name} {health.paused_stages[0]}`, unless the pause is still needed"
    waits = f"its oldest increment has waited for more than {limit:.0f} s"
    summary = f"{name} is {what}, and {waits}" if is_paused else f"{name} is {what}: {waits}"
    yield Alert(f"late:{name}", "late", "warning", name, summary, why, action)


def _of_drain(name: str, drain: DrainHealth | None, limit: float) -> Iterable[Alert]:
    """Yield an alert if files wait for a drain that was forgotten."""
    if not limit or drain is None or drain.seconds <= limit:
        return
    summary = (
        f"{name} is {drain.status}, and a file has waited in its drop folders for more than "
        f"{limit:.0f} s"
    )
    why = "no file is taken in until an operator resumes the dataflow"
    action = f"`cbp resume {name}`, unless the drain is still needed"
    yield Alert(f"drain:{name}", "late", "warning", name, summary, why, action)


def _of_rebuild(name: str, rebuild: RebuildHealth | None) -> Iterable[Alert]:
    """Yield an alert if a rebuild failed, or if its swap was forgotten."""
    if rebuild is None:
        return
    if rebuild.status == "failed":
        summary, why = f"the rebuild of {name} failed; the tables are unchanged", rebuild.error
        action = (
            f"fix the cause, then run `cbp rebuild {name}` again; or run "
            f"`cbp rebuild {name} --cancel` if it is no longer needed"
        )
    elif rebuild.seconds > SWAP_WAITS_SECONDS:
        summary = f"a rebuild of {name} has been ready for more than an hour, but is not swapped in"
        why = "until the swap, the rebuild also reads all new input, and no kept input is removed"
        action = f"run `cbp rebuild {name} --swap`, or discard the new tables with `--cancel`"
    else:
        return
    yield Alert(f"rebuild:{name}", "rebuild", "warning", name, summary, why, action)
