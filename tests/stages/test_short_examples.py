"""The stages that are shown as examples are as short as the documents say."""

from __future__ import annotations

import ast
import inspect

import pytest

from cbp.sdk.translate import Declared
from stages.translators.distances import Distances
from stages.translators.sessions import Sessions
from stages.translators.top_k import TopK
from stages.translators.unpaid_orders import UnpaidOrders

LINES_MAX = 29


def code_lines(of: type[Declared]) -> list[str]:
    """Return the lines of a class without docstrings and empty lines."""
    source = inspect.getsource(of)
    described = (ast.ClassDef, ast.FunctionDef)
    strings = [
        node.body[0]
        for node in ast.walk(ast.parse(source))
        if isinstance(node, described) and ast.get_docstring(node)
    ]
    left_out = {n for one in strings for n in range(one.lineno, (one.end_lineno or 0) + 1)}
    lines = enumerate(source.splitlines(), 1)
    return [line for number, line in lines if number not in left_out and line.strip()]


@pytest.mark.parametrize("stage", [TopK, Sessions, UnpaidOrders, Distances])
def test_an_example_has_less_than_thirty_lines(stage: type[Declared]) -> None:
    """Top-k with corrections, sessions, expiring orders, a search while edges go."""
    assert 10 < len(code_lines(stage)) <= LINES_MAX
