"""Files that nobody wrote: accepted as another reader reads them, or refused with a code.

So it is with 10,000 damaged files of every format, in bounded time (900 by default).
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from controller.ingest.formats import access_log, avro_types, columns, xml_records
from controller.ingest.formats.avro_types import PRIMITIVES, AvroType, read_long
from controller.ingest.limits import IngestLimits
from controller.ingest.reader.reader_pool import ReaderPool
from controller.ingest.rejection import FileRejectedError
from controller.ingest.repeated_files import RepeatedFiles
from controller.ingest.source_log import SourceEntry, SourceLog
from controller.store.base import Judged
from tests.controller.ingest.harness import Drop, lines
from tests.fuzz import service
from tests.fuzz.cases import SCHEMA, Case, case_of
from tests.fuzz.play import LIMITS, STRICT_LIMITS, judge, play, play_beside, read
from tests.fuzz.service import play_stepped
from tests.fuzz.structured import FORMATS, LOG_SCHEMA, structured_case

CASES = 10_000
DAMAGED = [range(900), *(range(first, first + 2_500) for first in range(0, CASES, 2_500))]
SERVED = 80
PLANTED = 60
STRUCTURED = 210
STRUCTURED_SERVED = 84
STRUCTURED_PLANTED = 1_400
FOUND = Path(__file__).parents[1] / "fixtures" / "fuzz"
REFUSED = {
    "quotes.csv": "csv_quote",
    "equal_keys.jsonl": "json_invalid",
    "cut_in_last_field.csv": "line_end",
    "name_no_text.parquet": "parquet_damaged",
    "histogram.parquet": "file_ends_reader",
    "encoding_of_nobody.xml": "encoding",
    "offset_of_99_minutes.access_log": "value_type",
    "year_33658.parquet": "value_range",
}
"""What was found, by this or by people, and what comes of it now."""


@pytest.mark.part(every=len(DAMAGED))
@pytest.mark.parametrize("seeds", DAMAGED)
def test_damaged_files_are_right_or_refused(seeds: range, tmp_path: Path) -> None:
    """Each record is what another reader finds; each refusal is coded, bounded and prompt."""
    outcomes, wrong = play_beside(seeds, tmp_path)
    assert wrong == []
    assert sum(outcomes.values()) == len(seeds)
    assert outcomes["accepted"] > len(seeds) // 10
    assert len(outcomes) > 12, "few kinds of damage were made"


def _check_structured(outcomes: Counter[str], wrong: list[str], count: int) -> None:
    assert wrong == []
    assert sum(outcomes.values()) == count
    assert outcomes["accepted"] > count // 10
    assert len(outcomes) > 20, "few kinds of damage were made"


def test_files_that_lie_in_one_place_are_right_or_refused(tmp_path: Path) -> None:
    """Counts, sizes, types, nesting, pages, encodings, members: of all seven formats.

    For more: `python -m tests.fuzz --structured --cases 10000`.
    """
    _check_structured(*play_beside(range(STRUCTURED), tmp_path, structured=True), STRUCTURED)


@pytest.mark.soak
@pytest.mark.timeout(1_800)
def test_ten_thousand_files_that_lie_leave_the_memory_as_it_was(tmp_path: Path) -> None:
    """What the last thousand cases take at most is what the second thousand did, or little more."""
    memory = list[int]()
    played = play_beside(range(CASES), tmp_path, structured=True, memory=memory)
    _check_structured(*played, CASES)
    assert max(memory[-1000:]) < 1.25 * max(memory[1000:2000])


@pytest.mark.soak
def test_a_service_takes_uploads_and_files_that_lie(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No answer to an upload is above a 4xx; each file is as in the test of other damage below.

    For more, in a process of its own: `python -m tests.fuzz --structured --service --cases 2000`.
    """
    monkeypatch.setattr(os, "fsync", lambda handle: None)
    outcomes, wrong = play_stepped(
        range(STRUCTURED_SERVED), tmp_path, structured_case, uploads=True
    )
    assert wrong == []
    assert sum(outcomes.values()) == STRUCTURED_SERVED
    assert outcomes["accepted"] > STRUCTURED_SERVED // 10
    assert len(outcomes) > 8, "few kinds of damage were made"


def _abs_long(data: bytes, at: int) -> tuple[int, int]:
    value, at = read_long(data, at)
    return abs(value), at


_WITHOUT_SIGN = AvroType(_abs_long, pa.int64(), 1, "long")


def _forget_column(records: xml_records._Records, column: str, value: str | None) -> None:
    records._row.setdefault(column, value)


@pytest.mark.part(every=3)
@pytest.mark.parametrize(
    ("format_", "where", "name", "mistake"),
    [
        ("xml", xml_records._Records, "_put", _forget_column),
        ("access_log", access_log, "_moment", lambda text: datetime(2026, 1, 1, tzinfo=UTC)),
        ("avro", avro_types, "PRIMITIVES", {**PRIMITIVES, "long": _WITHOUT_SIGN}),
    ],
)
def test_a_planted_mistake_is_found_by_structure(
    format_: str,
    where: Any,
    name: str,
    mistake: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A column that comes twice, a time that is another one, a number without its sign."""
    monkeypatch.setattr(where, name, mistake)
    every = len(FORMATS)
    seeds = range(FORMATS.index(format_), STRUCTURED_PLANTED, every)
    _, wrong = play(seeds, tmp_path, structured=True)
    assert wrong


@pytest.mark.soak
def test_cases_are_played_where_the_current_folder_is_no_place_of_modules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `deploy/test.sh` starts the tests, and from any folder."""
    monkeypatch.setenv("PYTHONSAFEPATH", "1")
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.chdir(tmp_path)
    outcomes, wrong = play_beside(range(20), tmp_path)
    assert wrong == []
    assert sum(outcomes.values()) == 20


@pytest.mark.soak
def test_a_process_that_plays_nothing_says_why(tmp_path: Path) -> None:
    """One that dies before its first case is no empty result, and no error of ours."""
    outcomes, wrong = play_beside(range(20), tmp_path / "absent")
    assert not outcomes
    assert len(wrong) == 1
    assert "No such file or directory" in wrong[0]


def outcome(case: Case, path: Path, limits: IngestLimits) -> str:
    """Return the records of a case as text, which differs for 0.0 and -0.0, or its mistakes."""
    try:
        return repr(read(case, path, limits))
    except FileRejectedError as error:
        return repr(error.arguments())


@pytest.mark.parametrize("format_", ["jsonl", "csv"])
@pytest.mark.parametrize("seeds", [300, pytest.param(1_500, marks=pytest.mark.soak)])
def test_blocks_and_lines_give_the_same_of_every_file(
    seeds: int, format_: str, tmp_path: Path
) -> None:
    """Records and mistakes, of damaged files and of all that was found."""
    cases = [make(seed) for seed in range(seeds) for make in (case_of, structured_case)]
    found = [Case(format_, {}, path.read_bytes()) for path in FOUND.glob(f"*.{format_}")]
    assert found
    taken = Counter[bool]()
    for case in [*found, *(case for case in cases if case.format == format_)]:
        fast, strict = (outcome(case, tmp_path / "f", one) for one in (LIMITS, STRICT_LIMITS))
        assert fast == strict, case
        taken[fast.startswith("[{")] += 1
    assert min(taken[True], taken[False]) > seeds / 15


@pytest.mark.part(every=4)
@pytest.mark.parametrize("name", sorted(REFUSED))
def test_what_was_found_is_refused_and_the_next_file_is_read(name: str, tmp_path: Path) -> None:
    """The corpus goes through a reader's process, as in a service."""
    assert sorted(path.name for path in FOUND.iterdir()) == sorted(REFUSED)
    pool = ReaderPool()
    try:
        format_ = name.rpartition(".")[2]
        schema = LOG_SCHEMA if format_ == "access_log" else SCHEMA
        options = {"layout": "common"} if format_ == "access_log" else {}
        drop = Drop(tmp_path, schema, format_, reader=pool, options=options)
        drop.put("found", (FOUND / name).read_bytes())
        drop.scan()
        assert [reason["code"] for reason in drop.reasons()] == [REFUSED[name]]
        other = Drop(tmp_path / "next", "id BIGINT, name STRING", reader=pool)
        other.put("next", lines(1))
        assert other.scan().accepted == 1
    finally:
        pool.close()


def test_files_through_processes_settle_as_in_a_thread(tmp_path: Path) -> None:
    """Files through a drop folder: each is accepted or in quarantine, none is stuck."""
    pool, seen = ReaderPool(), 0
    try:
        for format_ in ("jsonl", "csv", "parquet"):
            cases = [c for c in map(case_of, range(300)) if c.format == format_ and not c.options]
            drop = Drop(tmp_path / format_, SCHEMA, format_, reader=pool, limits=LIMITS)
            for number, case in enumerate(cases[:24]):
                drop.put(f"{number:04d}", case.data)
            report = drop.scan()
            expected = [judge(case, tmp_path / "file")[0] for case in cases[:24]]
            settled = report.accepted + report.quarantined + report.duplicates
            assert settled == len(expected)
            codes = sorted(reason["code"] for reason in drop.reasons())
            assert codes == sorted(code for code in expected if code != "accepted")
            seen += settled
    finally:
        pool.close()
    assert seen > 60


@pytest.mark.part(every=2)
@pytest.mark.parametrize("format_", ["jsonl", "csv"])
def test_a_planted_mistake_is_found(
    format_: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader that makes nulls of what it cannot convert is found within some hundred cases."""

    def forgive(self: columns.ColumnBuilder, values, lines, bad):
        return pa.nulls(len(values), self.type)

    monkeypatch.setattr(columns.ColumnBuilder, "_exact", forgive)
    seeds = [seed for seed in range(1500) if case_of(seed).format == format_]
    _, wrong = play(seeds, tmp_path)
    assert wrong


def test_a_service_takes_files_of_any_name_and_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is accepted as another reader reads it, or in quarantine with its code, or shown.

    The service is healthy throughout, and its state is what the accepted files say. For 2,000 in a
    process of its own: `python -m tests.fuzz --service --cases 2000`.
    """
    monkeypatch.setattr(os, "fsync", lambda handle: None)
    outcomes, wrong = play_stepped(range(SERVED), tmp_path)
    assert wrong == []
    assert sum(outcomes.values()) == SERVED
    assert outcomes["accepted"] > SERVED // 10
    assert outcomes["stays"]
    assert len(outcomes) > 8, "few kinds of damage were made"


@pytest.mark.part(every=3)
@pytest.mark.parametrize("mistake", ["claim", "entry", "state"])
def test_a_planted_mistake_of_the_service_is_found(
    mistake: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that is dropped as known, an entry of a log that is cut, records that are not counted.

    Each is found by the comparison that is there for it, and by no other.
    """
    monkeypatch.setattr(os, "fsync", lambda handle: None)
    if mistake == "claim":
        monkeypatch.setattr(RepeatedFiles, "judge", lambda *_: [Judged("duplicate")])
    elif mistake == "entry":
        put = SourceLog.put

        def put_half(log: SourceLog, entries: Sequence[SourceEntry]) -> None:
            put(log, entries)
            path = Path(log._path(entries[0].increment.index))
            path.write_bytes(path.read_bytes()[:-40])

        monkeypatch.setattr(SourceLog, "put", put_half)
    else:
        code = service._STAGES.replace("sum(1 for _ in group.rows)", "1")
        assert code != service._STAGES
        monkeypatch.setattr(service, "_STAGES", code)
    _, wrong = play_stepped(range(PLANTED), tmp_path)
    expected = {
        "claim": (": duplicate", "state: no record"),
        "entry": ("scrub: file_damaged",),  # and health may say so, if it is asked in time
        "state": ("state: not there",),
    }[mistake]
    assert all(any(words in line for line in wrong) for words in expected)
    allowed = (*expected, '"degraded":{"fuzzed"') if mistake == "entry" else expected
    assert [line for line in wrong if not any(words in line for words in allowed)] == []


def test_a_seed_determines_its_case() -> None:
    """A seed is enough to get the file."""
    for seed in range(50):
        assert case_of(seed) == case_of(seed)
        assert structured_case(seed) == structured_case(seed)
    assert isinstance(case_of(0), Case)
