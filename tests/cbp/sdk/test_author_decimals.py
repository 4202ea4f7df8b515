"""DECIMAL in author's code: 38 digits, nothing rounded unasked, and no context of another's."""

from __future__ import annotations

import decimal
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from cbp import (
    DataflowBuilder,
    Decision,
    Input,
    Output,
    State,
    Translate,
    TranslateRecords,
    by,
    framed,
)
from cbp.engine.direct import LocalEngine
from cbp.errors import CbpError
from cbp.testing import run_dataflow
from tests.driver import Driver

Rows = list[dict[str, Any]]
Play = Callable[[Any, str, list[Rows]], Rows]

MONEY = "DECIMAL(38,10)"
LARGE = Decimal("1234567890123456789012345678.0000000001")


@pytest.fixture(params=["kit", "engine"])
def play(request: pytest.FixtureRequest, tmp_path: Path) -> Play:
    """Run one stage over increments in the kit or the engine; return what it wrote, in order."""

    def build(translator: Any, columns: str) -> Any:
        builder = DataflowBuilder("flow")
        builder.stage("one", translator, items=builder.source("items", columns))
        return builder.build()

    def in_kit(translator: Any, columns: str, increments: list[Rows]) -> Rows:
        result = run_dataflow(build(translator, columns), {"items": increments})
        return [row._asdict() for rows in result.outputs["one.totals"] for row in rows]

    def in_engine(translator: Any, columns: str, increments: list[Rows]) -> Rows:
        engine = LocalEngine(cache=f"{tmp_path}/cache")
        driver = Driver(engine, build(translator, columns), tmp_path)
        for rows in increments:
            driver.feed("items", rows)
        driver.run_until_idle()
        return [row for rows in driver.outputs("one.totals") for row in rows]

    return in_kit if request.param == "kit" else in_engine


class Sums(Translate):
    items = Input(f"k INT, amount {MONEY}", route_by="k")
    kept = State(f"k INT, total {MONEY}")
    totals = Output(f"k INT, total {MONEY}")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        total = sum((row.total for row in group.kept), Decimal(0))
        total += sum(row.amount for row in group.items)
        out.kept(k=key.k, total=total)
        out.totals(k=key.k, total=total)


def test_a_sum_of_38_digits_is_exact(play: Play) -> None:
    """Python's own 28 digits lost the last ten of it."""
    rows = [{"k": 1, "amount": LARGE}]
    assert play(Sums(), f"k INT, amount {MONEY}", [rows, rows]) == [
        {"k": 1, "total": LARGE},
        {"k": 1, "total": Decimal("2469135780246913578024691356.0000000002")},
    ]


class Each(TranslateRecords):
    """Emit what a function makes of each amount."""

    items = Input(f"k INT, amount {MONEY}")
    totals = Output(f"total {MONEY}")

    def __init__(self, function: Callable[[Decimal], Decimal]) -> None:
        self.function = function

    def translate(self, record: Any, out: Any) -> None:
        out.totals(total=self.function(record.amount))


def test_what_would_be_rounded_is_the_authors_error(play: Play) -> None:
    """With the line, and how to round where that is meant."""
    with pytest.raises(CbpError) as caught:
        play(Each(lambda n: n / 3), f"k INT, amount {MONEY}", [[{"k": 1, "amount": Decimal(1)}]])
    error = caught.value
    assert error.code == "author_code_failed"
    assert Path(__file__).name in error.details["place"]
    assert "Inexact" in error.details["cause"]
    assert "decimal.localcontext(traps=[])" in error.details["cause"]


def third(amount: Decimal) -> Decimal:
    with decimal.localcontext(traps=[]):  # type: ignore[arg-type]  # the stub wants a dict
        return round(amount / 3, 10)


def test_an_author_may_round_on_purpose(play: Play) -> None:
    """As the message says."""
    rows = [{"k": 1, "amount": Decimal(1)}]
    assert play(Each(third), f"k INT, amount {MONEY}", [rows]) == [
        {"total": Decimal("0.3333333333")}
    ]


class Rude(Each):
    def translate(self, record: Any, out: Any) -> None:
        decimal.getcontext().prec = 3
        decimal.getcontext().traps[decimal.Inexact] = False
        out.totals(total=record.amount)


def test_a_context_that_one_author_changes_is_no_others(play: Play) -> None:
    """Nor is that of the calling thread an author's: 1234.5679 was 1230 in another dataflow."""
    rows, columns = [{"k": 1, "amount": Decimal("1234.5678")}], f"k INT, amount {MONEY}"
    before = decimal.getcontext().prec
    play(Rude(abs), columns, [rows])
    assert decimal.getcontext().prec == before
    with decimal.localcontext(prec=3):
        exact = play(Each(lambda n: n + Decimal("0.0001")), columns, [rows])
    assert exact == [{"total": Decimal("1234.5679000000")}]


class Everywhere(Translate):
    """Emits how many digits there are wherever an author may compute."""

    key = "precision INT"
    items = Input(
        f"k INT, amount {MONEY}",
        route_by=by(lambda row: decimal.getcontext().prec, "INT"),
        frame_by=framed(lambda row: decimal.getcontext().prec + row.k),
    )
    totals = Output("of_key INT, of_call INT")

    def runnable(self, connectors: Any, memo: Any) -> Any:
        """Read all that is there, if an author's call has the digits of a DECIMAL."""
        chosen = {name: tuple(one.index for one in c.unread) for name, c in connectors.items()}
        keys = {one.framing_key for c in connectors.values() for one in c.unread}
        if not any(chosen.values()):
            return Decision(waits_for="more")
        assert keys == {38}
        assert decimal.getcontext().prec == 38
        return Decision(chosen, chosen)

    def translate(self, key: Any, group: Any, out: Any) -> None:
        (precision,) = key
        out.totals(of_key=precision, of_call=decimal.getcontext().prec)


def test_every_function_of_an_author_has_the_same_digits(play: Play) -> None:
    """Keys, frames and Runnables too, in whichever process they are called."""
    # The second record ends the frame of the first one.
    rows = [[{"k": 0, "amount": Decimal(1)}], [{"k": 1, "amount": Decimal(1)}]]
    assert play(Everywhere(), f"k INT, amount {MONEY}", rows) == [{"of_key": 38, "of_call": 38}]
