"""Decides what is wrong with the dataflows right now; pure.

Every alert says what happened, to which dataflow, and what a person can do about it. Whatever goes
on by itself within a minute is no alert: `controller.alerts.notices` waits before it sends.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from cbp.errors.counts import format_count

AlertKind = Literal[
    "stopped", "broken", "retrying", "late", "quarantine", "set_aside", "disk", "test"
]
HealthState = Literal["ok", "paused", "retrying", "stopped", "broken"]


@dataclass(frozen=True, slots=True)
class DataflowHealth:
    """The health of one dataflow.

    Attributes:
        reason: Why it is not `ok`, in words; names the stages.
        lag_seconds: Age of the oldest increment that a stage has not processed; `None` if none
            waits.
        quarantined: Maps each source to its files in quarantine.
        set_aside: Maps each stage to the records that it has set aside.
    """

    dataflow: str
    state: HealthState
    reason: str = ""
    lag_seconds: float | None = None
    quarantined: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    set_aside: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class Alert:
    """Something that a person should look at.

    Attributes:
        dataflow: `""` if it is about the service itself.
        key: Two alerts with one key are the same; the later one has newer words.
        size: Rises if it gets worse: a larger one is sent again.
        summary: One sentence that says what happened.
        detail: The reason, as the service gives it.
        action: What to do, with the command.
    """

    key: str
    kind: AlertKind
    severity: Literal["critical", "warning"]
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
        healths: The health of each dataflow.
        lag_seconds: A dataflow whose oldest increment waits for longer is late; 0 means none is.
        others: Alerts about the service itself.
    """
    alerts = [alert for health in healths for alert in _of_dataflow(health, lag_seconds)]
    alerts += others
    return tuple(sorted(alerts, key=lambda alert: alert.key))


def _of_dataflow(health: DataflowHealth, lag_seconds: float) -> Iterable[Alert]:
    name = health.dataflow
    if health.state == "stopped":
        yield Alert(
            f"stopped:{name}",
            "stopped",
            "critical",
            name,
            f"{name} has stopped: one of its stages needs an operator",
            health.reason,
            f"`cbp status {name}` has the error; fix its cause, then `cbp retry {name} STAGE`",
        )
    elif health.state == "broken":
        yield Alert(
            f"broken:{name}",
            "broken",
            "critical",
            name,
            f"{name} cannot be loaded",
            health.reason,
            f"`cbp status {name}` names the cause; a missing package has to be installed again",
        )
    elif health.state == "retrying":
        yield Alert(
            f"retrying:{name}",
            "retrying",
            "warning",
            name,
            f"{name} fails and is tried again",
            health.reason,
            f"nothing, if the retry succeeds; else `cbp doctor`, and `cbp status {name}`",
        )
    if lag_seconds and health.state != "paused" and (health.lag_seconds or 0) > lag_seconds:
        yield Alert(
            f"late:{name}",
            "late",
            "warning",
            name,
            f"{name} is late: its oldest increment has waited for more than {lag_seconds:.0f} s",
            health.reason or "the stages run, but do not keep up",
            f"`cbp status {name}` shows where increments wait, `cbp runs` how long runs take",
        )
    for source, count in health.quarantined.items():
        if count:
            yield _of_quarantine(name, source, count)
    for stage, count in health.set_aside.items():
        if count:
            yield _of_set_aside(name, stage, count)


def _of_quarantine(dataflow: str, source: str, count: int) -> Alert:
    return Alert(
        f"quarantine:{dataflow}/{source}",
        "quarantine",
        "warning",
        dataflow,
        f"in quarantine: {format_count(count, 'file')} of the source {source} of {dataflow}",
        "their records are in no table; other files are processed",
        f"`cbp quarantine list {dataflow} {source}` has the reasons; correct the files, then "
        "`cbp quarantine readmit`",
        size=count,
    )


def _of_set_aside(dataflow: str, stage: str, count: int) -> Alert:
    return Alert(
        f"set_aside:{dataflow}/{stage}",
        "set_aside",
        "warning",
        dataflow,
        f"set aside: {format_count(count, 'record')} by the stage {stage} of {dataflow}",
        "its code fails on them, so they are in no table; other groups are processed",
        f"`cbp set-aside {dataflow} {stage}` has the errors; fix the code and register it, then "
        f"`cbp give-back {dataflow} {stage}`",
        size=count,
    )
