"""A vectorised author's mistakes: coded, with the line, on both engines."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pytest

from cbp import Input, Output, State, TranslateArrow
from cbp.engine.direct import LocalEngine
from cbp.errors import AuthorCodeError, DefinitionError
from cbp.testing import run_epochs
from tests.cbp.engine.epochs import dataflow_of
from tests.driver import Driver


class Broken(TranslateArrow):
    """Does with the groups what a test wants."""

    urls = Input("url STRING", route_by="url")
    counts = State("url STRING, n BIGINT")
    totals = Output("url STRING, n BIGINT")

    def __init__(self, emit: Any) -> None:
        self._emit = emit

    def translate(self, groups: Any, out: Any) -> None:
        self._emit(groups, out)


def _wrong_type(groups: Any, out: Any) -> None:
    out.totals({"url": groups.keys.column("url"), "n": pa.array([1.0] * len(groups))})


def _wrong_column(groups: Any, out: Any) -> None:
    out.totals(groups.keys)


def _other_key(groups: Any, out: Any) -> None:
    out.counts({"url": ["elsewhere"], "n": [1]})


def _no_output(groups: Any, out: Any) -> None:
    out.total(groups.keys)


def _fails(groups: Any, out: Any) -> None:
    raise ZeroDivisionError


MISTAKES = [
    (_wrong_type, "column 'n' is declared BIGINT"),
    (_wrong_column, "expected the columns url, n"),
    (_other_key, "elsewhere"),
    (_no_output, "no output 'total'"),
    (_fails, "ZeroDivisionError"),
]


@pytest.mark.parametrize(("mistake", "says"), MISTAKES, ids=lambda v: getattr(v, "__name__", ""))
def test_a_mistake_is_named_with_its_place(mistake: Any, says: str, tmp_path: Path) -> None:
    """The direct engine names stage, class, the author's line and the first records."""
    dataflow = dataflow_of("url_count")
    node = replace(dataflow.stages["stage"], translator=Broken(mistake).spec())
    dataflow = replace(dataflow, stages=MappingProxyType({"stage": node}))
    driver = Driver(LocalEngine(cache=str(tmp_path / "cache")), dataflow, tmp_path / "t")
    driver.feed("s_urls", [{"url": "a"}])
    with pytest.raises(AuthorCodeError) as caught:
        driver.run_until_idle()
    details = caught.value.details
    assert says in details["cause"]
    assert details["function"] == "Broken.translate"
    assert details["inputs"]["urls"] == ["('a',)"]
    line = mistake.__code__.co_firstlineno + 1
    assert details["place"] == f"{__file__}:{line}"


@pytest.mark.parametrize("mistake", [m for m, _ in MISTAKES], ids=lambda v: v.__name__)
def test_the_test_kit_finds_the_same_mistakes(mistake: Any) -> None:
    """In memory they have the same code and place."""
    with pytest.raises(AuthorCodeError) as caught:
        run_epochs(Broken(mistake), [["a"]])
    assert str(mistake.__code__.co_firstlineno + 1) in caught.value.details["place"]


def test_an_input_does_not_hide_what_groups_has() -> None:
    """An input called like a function of `groups` is refused at registration."""

    class Hidden(TranslateArrow):
        keys = Input("url STRING", route_by="url")

        def translate(self, groups: Any, out: Any) -> None: ...

    with pytest.raises(DefinitionError) as caught:
        Hidden().spec()
    assert caught.value.mistake.code == "name_invalid"
