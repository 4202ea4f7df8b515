"""Why a file was refused, as the commands tell it."""

from __future__ import annotations

from controller.cli.records.sources import reason_text


def reason(*lines: int, more: bool = False) -> dict[str, object]:
    told = [{"line": n, "column": "id", "code": "value_type", "message": f"m{n}"} for n in lines]
    return {"code": "value_type", "message": "f, line 1: m1", "lines": told, "lines_more": more}


def test_a_list_names_the_other_lines_and_drop_tells_them() -> None:
    """One look shows everything that is to be mended: numbers in a table, all where one waits."""
    assert reason_text(reason(1, 3, 3, 7)) == "f, line 1: m1; also wrong: line 3, 7"
    assert reason_text(reason(1, 3), whole=True) == "f, line 1: m1\n  line 3, column 'id': m3"
    many = reason_text(reason(*range(1, 101), more=True))
    assert many.endswith("10, 11 and 89 others, and there may be more")


def test_a_reason_of_an_earlier_release_is_told_as_it_is() -> None:
    """It has one line; a claim without a reason has none."""
    assert reason_text({"code": "x", "message": "f, line 1: m1", "line": 1}) == "f, line 1: m1"
    assert reason_text(None) == ""
    assert reason_text(reason(1)) == "f, line 1: m1"
