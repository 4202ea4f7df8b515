"""Tables fit the terminal: words are whole, and what is left out is named."""

from __future__ import annotations

import pytest

from controller.terminal import print_records, print_table

COLUMNS = ("run", "dataflow", "epoch", "lane", "took", "why")
ROWS = [
    ("01a2092bd643ca7f0372", "visits", 12, "local", "2.0 s", "author_code_failed"),
    ("01a2092bd643ca7f0373", "visits", 13, "spark", "1.5 min", ""),
]


@pytest.fixture
def shown(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    def show(width: int, *, optional: tuple[str, ...] = (), rows=ROWS, columns=COLUMNS) -> str:
        monkeypatch.setenv("COLUMNS", str(width))
        print_table(columns, rows, empty="none", optional=optional)
        return capsys.readouterr().out

    return show


def test_a_table_that_fits_is_printed_whole(shown) -> None:
    """Every column, a line for each row, nothing left out."""
    lines = shown(100, optional=("lane",)).splitlines()
    assert len(lines) == 3
    assert lines[0].split() == list(COLUMNS)
    assert "left out" not in "".join(lines)


@pytest.mark.parametrize(
    ("width", "optional", "left"),
    [
        (68, ("lane", "took"), ["lane"]),
        (68, ("took", "lane"), ["took"]),
        (58, ("took", "lane"), ["lane", "took"]),
    ],
)
def test_columns_are_left_out_in_their_order_and_named(
    shown, width: int, optional: tuple[str, ...], left: list[str]
) -> None:
    """No word is broken, no line of the table is longer than the terminal."""
    heading, *rows, last = shown(width, optional=optional).splitlines()
    assert heading.split() == [column for column in COLUMNS if column not in left]
    assert last.startswith(f"columns left out: {', '.join(left)} (")
    for line, row in zip(rows, ROWS, strict=True):
        assert len(line) <= width
        for column, cell in zip(COLUMNS, row, strict=True):
            assert (str(cell) in line) or column in left


def test_rows_that_do_not_fit_at_all_are_printed_as_lines(shown) -> None:
    """A column and its value in a line, for each row; no value is missing."""
    output = shown(40)
    assert all(len(line.rstrip()) <= 40 for line in output.splitlines())
    words = output.split()
    for row in ROWS:
        for cell in row:
            for word in str(cell).split():
                assert word in words
    assert words.count("dataflow") == len(ROWS)


def test_prose_is_wrapped_at_words(shown) -> None:
    """The table stays a table as long as names and figures fit."""
    reason = "the loaded code differs from version 1 of the dataflow"
    output = shown(60, columns=("stage", "why"), rows=[("keep_me_whole", reason)])
    assert "keep_me_whole" in output
    assert len(output.splitlines()) > 2
    for word in reason.split():
        assert word in output.split()


def test_two_columns_of_sentences_fit_a_usual_terminal(shown) -> None:
    """They share what names leave them, as in `cbp doctor`; a row is no block of lines."""
    found = "other users of this machine may read /srv/continuous/cbp-root"
    remedy = "take their right away with: chmod -R o-rwx /srv/continuous/cbp-root"
    names = ("", "check", "found", "what to do")
    output = shown(80, columns=names, rows=[("warn", "tables folder", found, remedy)])
    assert output.splitlines()[0].split() == ["check", "found", "what", "to", "do"]
    assert all(len(line.rstrip()) <= 80 for line in output.splitlines())
    for word in (found + " " + remedy).split():
        assert word in output.split()


def test_a_value_that_is_longer_than_the_terminal_is_folded_whole(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records of a user may have texts of any length; all of it is printed."""
    monkeypatch.setenv("COLUMNS", "50")
    print_records([{"id": 7, "text": "x" * 500}], empty="none")
    output = capsys.readouterr().out
    assert output.count("x") >= 500
    assert all(len(line.rstrip()) <= 50 for line in output.splitlines())


def test_records_of_which_some_lack_columns_are_shown_with_all_of_them(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As those from before an output became a view, or its schema grew; whichever come first."""
    monkeypatch.setenv("COLUMNS", "100")
    older = {"word": "a", "n": 1, "_epoch": 0}
    newer = {"word": "b", "n": 2, "change_type": "insert", "sign": 1, "_epoch": 1}
    for items in ([older, newer], [newer, older]):
        print_records(items, empty="none")
        heading, *lines = capsys.readouterr().out.splitlines()
        assert heading.split() == list(newer)
        assert any("insert" in line for line in lines)
