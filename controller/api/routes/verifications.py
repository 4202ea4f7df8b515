"""Verifications: start one, show its progress, cancel it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from cbp.model.verification import Kind, Request, Split, Status, Verification
from controller.api.answers.schemas import Model, Page
from controller.api.routing.dependencies import VerificationsDep
from controller.api.routing.routers import leader_only, problems, router

__all__ = ["routes"]

SECONDS_MAX = 7 * 86_400.0

routes = router("verifications")


class VerificationIn(Model):
    """What to verify, and the time limit."""

    split: Split = Field(
        "increments", description="`increments`: as it arrived; `at_once`: as one batch."
    )
    engine: Literal["direct", "reference"] = "direct"
    twice: bool = Field(False, description="Recompute twice although nothing differs.")
    seconds_max: float = Field(600.0, gt=0, le=SECONDS_MAX)


class DifferingOut(Model):
    """One key whose records differ, as text."""

    key: str
    expected: list[str]
    found: list[str]


class TableVerdictOut(Model):
    """The result for one table."""

    table: str
    kind: Kind
    status: Literal["open", "equal", "differs", "left_out"]
    records: int = Field(description="Records compared, counted on both sides.")
    differing: list[DifferingOut] = Field(description="The first keys that differ.")
    because: str = Field(description="Why it is left out.")
    within: str = Field(description="How closely records agree, as declared; empty: exactly.")
    since: int | None = Field(
        description="First epoch that was repeated, from the state before it; "
        "null: all were made again from scratch."
    )


class VerificationOut(Model):
    """Progress or result of a verification."""

    id: str
    dataflow: str
    split: Split
    engine: str
    status: Status
    ended: bool
    step: str
    done: int
    total: int
    seconds: float
    epochs: dict[str, int] | None = Field(description="Stage to the last epoch compared.")
    tables: list[TableVerdictOut]
    suspect: str = Field(description="First stage, upstream first, with a table that differs.")
    error: dict[str, object] | None


@routes.post("/dataflows/{name}/verifications", status_code=202, responses=problems(404, 409))
def start(name: str, wanted: VerificationIn, verifications: VerificationsDep) -> VerificationOut:
    """Start to recompute a dataflow from its retained input, and to compare every table."""
    request = Request(wanted.split, wanted.engine, wanted.twice, wanted.seconds_max)
    return _shown(verifications.start(name, request))


@routes.get("/dataflows/{name}/verifications", responses=problems(404))
@leader_only
def list_verifications(name: str, verifications: VerificationsDep) -> Page[VerificationOut]:
    """List the last verifications of a dataflow, newest first; a restart forgets them."""
    return Page(items=[_shown(one) for one in verifications.all(name)])


@routes.get("/verifications/{verification}", responses=problems(404))
@leader_only
def show(verification: str, verifications: VerificationsDep) -> VerificationOut:
    """Show the progress or the result of a verification."""
    return _shown(verifications.show(verification))


@routes.post("/verifications/{verification}/cancel", status_code=202, responses=problems(404))
def cancel(verification: str, verifications: VerificationsDep) -> VerificationOut:
    """Ask a verification to end; it keeps the results so far. Idempotent."""
    return _shown(verifications.cancel(verification))


def _shown(one: Verification) -> VerificationOut:
    return VerificationOut(
        id=one.id,
        dataflow=one.dataflow,
        split=one.request.split,
        engine=one.request.engine,
        status=one.status,
        ended=one.ended,
        step=one.step,
        done=one.done,
        total=one.total,
        seconds=one.seconds,
        epochs=one.epochs,
        tables=[
            TableVerdictOut(
                table=verdict.table,
                kind=verdict.kind,
                status=verdict.status,
                records=verdict.records,
                differing=[
                    DifferingOut(key=d.key, expected=list(d.expected), found=list(d.found))
                    for d in verdict.differing
                ],
                because=verdict.because,
                within=verdict.within,
                since=verdict.since,
            )
            for verdict in one.tables
        ],
        suspect=one.suspect,
        error=one.error,
    )
