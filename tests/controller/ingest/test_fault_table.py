"""The faults of files and folders that other readers pass over: which test holds each of them.

A fault, then where it is held: a file below `tests/controller/ingest`, and its test. The test below
fails where one of them is gone.

gzip cut in half                      formats/test_faults.py test_damaged_csv_goes_to_quarantine
gzip with a wrong checksum            formats/test_faults.py test_damaged_csv_goes_to_quarantine
gzip with one byte flipped            formats/test_faults.py test_one_flipped_bit_of_a_gzip_file_is_seen
gzip and garbage behind it            formats/test_faults.py test_damaged_csv_goes_to_quarantine
two gzip members                      formats/test_faults.py test_sound_csv_is_read_whole
plain text named .gz                  test_fault_table.py test_a_name_says_nothing_of_the_content
gzip named .csv                       test_fault_table.py test_a_name_says_nothing_of_the_content
plain file cut in a line              formats/test_faults.py test_damaged_csv_goes_to_quarantine
plain file cut in its last value      formats/test_faults.py test_csv_last_line_end_is_required
empty file                            formats/test_faults.py test_empty_json_lines_file_is_an_empty_increment
empty file where a header is expected formats/test_faults.py test_damaged_csv_goes_to_quarantine
Latin-1 read as UTF-8                 formats/test_faults.py test_damaged_csv_goes_to_quarantine
name that begins with _               test_drop_folder.py test_any_name_is_taken_and_none_reaches_a_path
name that begins with .               test_drop_folder.py test_unfinished_names_are_left_alone
replaced after it was listed          folder/test_growth.py test_a_file_that_changes_between_listing_and_claim_waits_on
replaced after it was claimed         test_drop_folder.py test_file_written_to_after_its_claim_is_quarantined
byte-order mark, CR LF                formats/test_faults.py test_sound_csv_is_read_whole
NUL inside, CR alone                  formats/test_faults.py test_damaged_csv_goes_to_quarantine
renamed while a folder is listed      test_fault_table.py test_a_file_that_is_renamed_in_the_middle_of_a_pass_comes_once
two clocks ten minutes apart          test_drop_folder.py test_times_of_files_do_not_decide_whether_they_are_taken
a backlog: cost of a file             test_linear.py test_a_file_costs_the_same_however_many_wait
a backlog: fair share                 test_drop_folder.py test_a_pass_ends_after_its_time
disk full at each step                test_fault_table.py test_a_full_disk_at_any_step_loses_nothing
folder that cannot be written         folder/test_folder_check.py test_an_unusable_folder_is_the_trouble_of_its_source_alone
rights that are lost for a file       test_fault_table.py test_a_file_that_cannot_be_opened_stops_nothing_beside_it
link, FIFO, device                    folder/test_strange_files.py test_no_kind_of_file_stops_its_source
folder below that becomes a link      folder/test_nested.py test_a_folder_that_becomes_a_link_is_not_followed
folders below, deep and long          folder/test_nested.py test_the_depth_and_the_length_of_paths_are_bounded
name of 255 bytes                     test_drop_folder.py test_any_name_is_taken_and_none_reaches_a_path
name that is no UTF-8                 test_drop_folder.py test_name_that_is_no_utf8_is_shown_escaped
names that differ in case             test_fault_table.py test_names_that_differ_in_case_are_two_files
equal content from two sources        test_drop_folder.py test_same_content_in_two_sources_counts_twice
one huge line                         formats/test_faults.py test_one_huge_line_is_rejected_in_bounded_memory
10 GB from 10 MB                      formats/test_faults.py test_a_bomb_is_stopped
ZIP, whatever it holds                formats/test_faults.py test_damaged_csv_goes_to_quarantine
deleted before its claim              test_drop_folder.py test_file_taken_away_before_its_claim_is_no_error
appended after the settle time        folder/test_growth.py test_what_is_written_while_a_file_is_taken_in_is_reported
appended after it was read            folder/test_growth.py test_what_is_written_later_is_reported
table gone, replaced, set back        folder/test_table_feed.py test_what_happens_to_a_table_stops_its_source_with_a_code
table whose disk is away              formats/test_delta_changes.py test_a_table_whose_disk_is_away_is_tried_again
table outside of what is allowed      folder/test_table_feed.py test_a_table_outside_of_the_allowed_folders_is_not_read
table without a change feed           folder/test_table_feed.py test_a_table_without_a_change_feed_is_refused_before_its_rows_come
table's file is gone                  formats/test_delta_changes.py test_a_file_that_is_gone_refuses_its_versions
table's log leads elsewhere           formats/test_delta_changes.py test_a_log_leads_to_no_file_outside_of_its_table
table's version cannot be read        folder/test_table_feed.py test_a_removed_data_file_puts_its_version_aside_and_the_later_ones_wait
table's columns are others            formats/test_delta_changes.py test_a_table_that_is_not_as_declared_is_refused
crash while versions are taken in     folder/test_table_feed.py test_a_crash_anywhere_gives_each_version_once
"""  # noqa: E501 - a table

from __future__ import annotations

import errno
import gzip
import itertools
import os
import re
from pathlib import Path

import pytest

from tests.controller.ingest.harness import Drop, lines
from tests.planned_faults import PlannedFaults

SCHEMA = "id BIGINT, name STRING"
HERE = Path(__file__).parent
EFFECTS = ("claim", "rename", "increment_file", "data_sync", "source_log")


def test_every_fault_has_its_test() -> None:
    """The table above names tests that exist, and each fault once."""
    assert __doc__ is not None
    rows = re.findall(r"^(.+?) +(\S+\.py) (test_\w+)$", __doc__, re.MULTILINE)
    assert len(rows) > 30
    assert len({row[0] for row in rows}) == len(rows)
    for fault, file, test in rows:
        assert f"\ndef {test}(" in (HERE / file).read_text(), fault


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz", "a.gz", "a.zst", "a.bz2", "a"])
def test_a_name_says_nothing_of_the_content(name: str, tmp_path: Path):
    """Plain text named `.gz` and gzip named `.csv` are read whole: only the content counts."""
    plain = b"id,name\n" + b"".join(b"%d,n\n" % i for i in range(100))
    for number, data in enumerate((plain, gzip.compress(plain))):
        drop = Drop(tmp_path / str(number), SCHEMA, "csv")
        drop.put(name, data)
        assert drop.scan().accepted == 1, drop.reasons()
        assert [row["id"] for row in drop.rows()] == list(range(100))


def test_a_file_that_is_renamed_in_the_middle_of_a_pass_comes_once(tmp_path: Path):
    """Race: (1) listed (2) renamed by its producer (3) claimed by its old name, which is gone."""
    drop = Drop(tmp_path, SCHEMA)

    def rename(point: str) -> None:
        if point == "rename.before" and (drop.incoming / "a").exists():
            os.rename(drop.incoming / "a", drop.incoming / "b")

    drop.put("a", lines(3))
    drop.start(rename)
    drop.scan()
    drop.start()
    drop.scan()
    drop.scan()
    assert [row["id"] for row in drop.rows()] == [0, 1, 2]
    assert len(drop.increments()) == 1


def test_names_that_differ_in_case_are_two_files(tmp_path: Path):
    """Also where their content is equal: a name is its bytes."""
    drop = Drop(tmp_path, SCHEMA)
    drop.put("a.jsonl", lines(1))
    drop.put("A.jsonl", lines(1))
    assert drop.scan().accepted == 2
    assert [row["id"] for row in drop.rows()] == [0, 0]


@pytest.mark.parametrize("side", ["before", "after"])
@pytest.mark.parametrize("effect", EFFECTS)
def test_a_full_disk_at_any_step_loses_nothing(effect: str, side: str, tmp_path: Path):
    """Whichever step finds no space, at whichever file, each file has its fate once.

    Two good files, between them a bad one; then passes of the same process, and of a new one.
    """
    for passage in itertools.count(1):
        drop = Drop(tmp_path / str(passage), SCHEMA)
        for name, content in (("0", lines(1)), ("1", b"no json\n"), ("2", lines(1, start=1))):
            drop.put(name, content)
        full = OSError(errno.ENOSPC, "No space left on device")
        faults = PlannedFaults(f"{effect}.{side}", passage=passage, error=full)
        drop.start(faults)
        drop.scan()
        drop.pass_seconds(3600)
        drop.scan()
        if faults.passed[f"{effect}.{side}"] < passage:
            break
        drop.start()
        drop.recover()
        for _ in range(3):
            drop.scan()
        assert sorted(row["id"] for row in drop.rows()) == [0, 1]
        assert not drop.names("claimed")
        assert [one["code"] for one in drop.reasons()] == ["json_invalid"]
    assert passage > 1, "the step was not passed"


def test_a_file_that_cannot_be_opened_stops_nothing_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Rights that were taken away after the listing: the file is refused, the others come in."""
    drop = Drop(tmp_path, SCHEMA)
    for name in ("a", "b", "c"):
        drop.put(name, lines(1))
    opened = os.open

    def refuse(path: str, *arguments: int, **more: int) -> int:
        if "claimed" in str(path) and str(path).endswith("-b"):
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return opened(path, *arguments, **more)

    monkeypatch.setattr(os, "open", refuse)
    report = drop.scan()
    monkeypatch.undo()
    assert report.accepted == 2
    assert [(one["code"], one["file"]) for one in drop.reasons()] == [("file_unreadable", "b")]
