"""What a task reports: every kind arrives as it was sent, and no other text is a report."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import get_args

import pytest

from cbp.engine.run import assembly
from cbp.engine.run.assembly import Reported, raise_first_error
from cbp.engine.state.pending_deletes import Deletes
from cbp.engine.task.reports import (
    BindingsFile,
    Counts,
    DeletedRows,
    DroppedFile,
    Failed,
    GroupFailed,
    JobLane,
    MergedFile,
    MessageMisplaced,
    NewStateFile,
    NextPhase,
    NextTimer,
    OutputFile,
    ProcessChanged,
    SetAside,
    TaskReport,
    decode,
    encode,
)
from cbp.errors import AuthorCodeError, DiskFullError, InvariantError
from cbp.model.plan.spark_or_worker import Lane

_FILE = ("counts", 3, "_runs/_bucket=3/ä.parquet", 7, 900)
_FAILED = Failed.of(AuthorCodeError(stage="s", function="f", place="x.py:3", cause="KeyError: 'ü'"))
SENT: list[TaskReport] = [
    OutputFile("count.url_counts", "flows/count.url_counts/_runs/1.parquet", 5, 600, 8),
    BindingsFile("flows/b.parquet", 2, 300),
    NewStateFile(*_FILE),
    MergedFile(*_FILE, ("a.parquet", "b.parquet"), 1_200),
    DroppedFile("counts", "a.parquet", 600),
    DeletedRows("counts", "a.parquet", Deletes(2, inline="AAAA")),
    DeletedRows("counts", "b.parquet", Deletes(9, "", "_vectors/x.deletes", 4, 50, 77)),
    NextTimer(1_700_000_000_000_001),
    Counts({"groups": 3, "seconds_task": 0.25, "records_in.urls": 2**53}),
    _FAILED,
    MessageMisplaced(),
    NextPhase((NewStateFile(*_FILE), Counts({"groups": 1}))),
    JobLane(Lane.RESIDENT),
    ProcessChanged("count", "Count.translate", "x.py:3", "calls", ("the time zone", "sys.path")),
    GroupFailed('{"k":"ä"}', _FAILED),
    SetAside("urls", 7, '{"k":null}', '{"url":"/"}'),
    SetAside("urls", 8, None, '{"url":null}', _FAILED),
]


def test_every_kind_arrives_as_it_was_sent():
    """Types, numbers and text too; the list above has every kind that there is."""
    assert {type(report) for report in SENT} == set(get_args(TaskReport))
    for report in SENT:
        assert decode(encode([report])) == [report]
    again = decode(encode(SENT))
    assert again == SENT
    assert [type(report) for report in again] == [type(report) for report in SENT]
    assert decode(encode([])) == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        "3",
        "[[]]",
        '[["other"]]',
        '[["OutputFile", "x"]]',
        '[["JobLane", "fast"]]',
        '[{"k": 1}]',
    ],
)
def test_another_text_is_refused(text: str):
    """It would otherwise be a file that no record names, or a run without its error."""
    with pytest.raises(InvariantError) as refused:
        decode(text)
    assert refused.value.code == "invariant_broken"


def test_a_foreign_object_is_not_sent():
    """The union is closed; mypy finds who passes something else, and so does the task."""
    with pytest.raises(AssertionError):
        encode([{"kind": "counts"}])  # type: ignore[list-item]


def test_reports_are_sorted_by_kind():
    """Each kind has its place; what the next phase reports is kept for that, but its failure."""
    reported = Reported([one for one in SENT if not isinstance(one, Failed | MessageMisplaced)])
    assert not reported.misplaced
    assert reported.groups == 3
    assert reported.next_phase == [NewStateFile(*_FILE), Counts({"groups": 1})]
    kinds: set[type] = {*map(type, SENT)}
    assert sum(len(reported.all(kind)) for kind in kinds) == len(SENT) - 3
    raise_first_error(reported)
    behind = NextPhase((_FAILED, MessageMisplaced()))
    reported = Reported([Counts({"groups": 3}), behind])
    assert reported.misplaced
    assert reported.all(Failed) == [_FAILED]


def test_the_driver_reads_every_kind():
    """A kind that nobody asks for would be dropped without a word: a file that no record names."""
    read = {
        node.args[0].id
        for path in Path(assembly.__file__).parent.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "all"
        and node.args
        and isinstance(node.args[0], ast.Name)
    }
    # What the next phase reports is taken apart by `Reported` itself.
    kinds = {kind.__name__ for kind in get_args(TaskReport)} - {NextPhase.__name__}
    assert kinds - read == set()


def test_the_error_that_is_raised_is_always_the_same():
    """It is the one with the smallest text, as it was raised: class, code, details."""
    failed = [Failed.of(DiskFullError("b")), _FAILED, Failed.of(DiskFullError("a"))]
    sent = decode(encode(failed))
    expected = min((one.error() for one in failed), key=lambda error: error.message)
    for order in (sent, sent[::-1]):
        with pytest.raises(type(expected)) as caught:
            raise_first_error(Reported(order))
        assert caught.value.as_dict() == json.loads(json.dumps(expected.as_dict()))
