"""Verifications: start one, show its progress, cancel it."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from fastapi import Depends, Query
from pydantic import Field

from cbp.model.verification import (
    Differing,
    Kind,
    Request,
    Split,
    Status,
    TableVerdict,
    Verification,
)
from controller.api.answers.schemas import Model, Page, PageQuery
from controller.api.requests.moments import ErrorCode, RangePageQuery
from controller.api.routing.cursors import CursorsDep
from controller.api.routing.dependencies import ExchangeDep, VerificationsDep
from controller.api.routing.router_factory import Scope, needs, problems, router
from controller.api.routing.scope_check import require_granted
from controller.loop.verification.verifications import FEW

SECONDS_MAX = 7 * 86_400.0

routes = router("verifications")


class VerificationIn(Model):
    """What to verify, and the time limit."""

    split: Split = Field(
        "increments",
        description="`increments`: read the input as it arrived; `at_once`: read it as one batch.",
    )
    engine: Literal["direct", "reference"] = "direct"
    twice: bool = Field(False, strict=True, description="Recompute twice even if nothing differs.")
    seconds_max: float = Field(600.0, gt=0, le=SECONDS_MAX, strict=True)


class DifferingOut(Model):
    """One key whose records differ, as text."""

    key: str
    expected: list[str]
    found: list[str]


class TableVerdictOut(Model):
    """The result for one table."""

    table: str
    kind: Kind
    status: Literal["open", "equal", "undecided", "differs", "left_out"] = Field(
        description="`undecided`: the table could not be compared, or only from epoch `since` on. "
        "`left_out`: the table contains messages, which are not results."
    )
    records: int = Field(description="Records compared, counted on both sides.")
    differing: list[DifferingOut] = Field(description="The first keys that differ.")
    differences: int = Field(
        description="Number of differing keys that were stored; a verification stores about "
        "1,000 at most. `GET .../differences` lists them."
    )
    because: str = Field(description="Why the table is not compared.")
    within: str = Field(
        description="How closely records must agree, as declared; empty means exactly."
    )
    since: int | None = Field(
        description="First epoch that was recomputed, starting from the state before it; `null` if "
        "everything was recomputed from scratch."
    )


class DifferencesQuery(PageQuery):
    """The part of a verification's differences that a client wants."""

    table: str | None = Field(None, max_length=500, description="Only differences of this table.")


class DifferenceOut(Model):
    """One key whose records differ, value by value, as text."""

    table: str
    number: int = Field(description="Number of the key among the table's differing keys, from 0.")
    columns: list[str] = Field(description="Columns of a record, in order.")
    key_columns: list[str]
    key: list[str]
    expected: list[list[str]] = Field(
        description="Records that the recomputation has and the table lacks."
    )
    found: list[list[str]] = Field(
        description="Records that the table has and the recomputation lacks."
    )


class VerificationQuery(RangePageQuery):
    """Which verifications to list."""

    error_code: ErrorCode = Field(
        None, description="Code of the error that ended the verification."
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
    total: int = Field(description="Number of steps in all; 0 if unknown.")
    unit: str = Field(description="What `done` and `total` count, such as `increments`.")
    began_at: datetime | None
    seconds: float
    epochs: dict[str, int] | None = Field(
        description="Maps each stage to the last epoch that is compared."
    )
    tables: list[TableVerdictOut]
    suspect: str = Field(description="The most upstream stage with a table that differs.")
    error: dict[str, object] | None


@routes.post("/dataflows/{name}/verifications", status_code=202, responses=problems(404, 409))
@needs(Scope.OPERATOR)
def start(name: str, wanted: VerificationIn, verifications: VerificationsDep) -> VerificationOut:
    """Start to recompute a dataflow from its retained input, and to compare every table."""
    request = Request(wanted.split, wanted.engine, wanted.twice, wanted.seconds_max)
    return _shown(verifications.start(name, request))


@routes.get("/dataflows/{name}/verifications", responses=problems(404))
@needs(Scope.VIEWER, leader_only=True)
def list_verifications(
    name: str,
    verifications: VerificationsDep,
    cursors: CursorsDep,
    query: VerificationQuery = Query(),
) -> Page[VerificationOut]:
    """List the last verifications of a dataflow, newest first; a restart keeps the last 20.

    Without a `limit` all of them are returned.
    """
    chosen = [
        one
        for one in verifications.all(name)
        if query.holds(one.began_at)
        and query.error_code in (None, (one.error or {}).get("error_code"))
    ]
    return cursors.short_list(chosen, query, lambda one: one.id, _shown)


def _granted(
    verification: str, verifications: VerificationsDep, exchange: ExchangeDep
) -> Verification:
    one = verifications.show(verification)
    require_granted(exchange, one.dataflow)
    return one


GrantedDep = Annotated[Verification, Depends(_granted)]


@routes.get("/verifications/{verification}", responses=problems(404))
@needs(Scope.VIEWER, any_dataflow=True, leader_only=True)
def show(one: GrantedDep) -> VerificationOut:
    """Show the progress or the result of a verification."""
    return _shown(one)


@routes.post("/verifications/{verification}/cancel", status_code=202, responses=problems(404))
@needs(Scope.OPERATOR, any_dataflow=True)
def cancel(one: GrantedDep, verifications: VerificationsDep) -> VerificationOut:
    """Cancel a verification; it keeps its results so far. Idempotent."""
    return _shown(verifications.cancel(one.id))


@routes.get("/verifications/{verification}/differences", responses=problems(404))
@needs(Scope.VIEWER, any_dataflow=True, leader_only=True)
def list_differences(
    one: GrantedDep, cursors: CursorsDep, query: DifferencesQuery = Query()
) -> Page[DifferenceOut]:
    """List the differing keys record by record, table by table, with every column's value.

    Up to 100 keys of a table are stored, and about 1,000 of a verification.
    """
    every = [
        (verdict, number, differing)
        for verdict in one.tables
        if query.table in (None, verdict.table)
        for number, differing in enumerate(verdict.differing)
    ]
    cursors = cursors.about(query.table or "")
    begin = min(cursors.number(query.cursor) or 0, len(every))
    end = begin + cursors.size(query)
    shown = [_difference(*one) for one in every[begin:end]]
    return Page(items=shown, cursor=cursors.seal(str(end) if end < len(every) else None))


def _difference(verdict: TableVerdict, number: int, one: Differing) -> DifferenceOut:
    return DifferenceOut(
        table=verdict.table,
        number=number,
        columns=list(verdict.columns),
        key_columns=list(verdict.key),
        key=list(one.key_cells),
        expected=[list(cells) for cells in one.expected_cells],
        found=[list(cells) for cells in one.found_cells],
    )


def _shown(one: Verification) -> VerificationOut:
    return VerificationOut.of(
        one,
        one.request,
        tables=[
            TableVerdictOut.of(
                verdict,
                differing=[DifferingOut.of(d) for d in verdict.differing[:FEW]],
                differences=len(verdict.differing),
            )
            for verdict in one.tables
        ],
    )
