"""The format `xml`: elements as records, within limits; nothing that a document could call in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from controller.ingest.limits import IngestLimits
from tests.controller.ingest.harness import Drop, accepted, rejected

SCHEMA = "id BIGINT, name STRING"


def rows(data: str, root: Path, schema: str = SCHEMA, **options: str) -> list[tuple[Any, ...]]:
    read = accepted(data.encode(), root, schema, "xml", options=options)
    return [tuple(row.values()) for row in read]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ('<r><a id="1" name="x"/><a id="2"/></r>', [(1, "x"), (2, None)]),
        ("<r>\n <a><name>x &amp; &#233;</name><id>1</id></a>\n</r>", [(1, "x & é")]),
        ("<r><a><name/><id>1</id></a></r>", [(1, "")]),
        ("<r><a><name><![CDATA[<b>]]></name></a></r>", [(None, "<b>")]),
        ('<n:r xmlns:n="u"><n:a n:id="1"><n:name>x</n:name></n:a></n:r>', [(1, "x")]),
        ('<r xmlns:x="u"><a id="1"><name x:nil="true"/></a></r>', [(1, None)]),
        ("<?xml version='1.0'?><!-- c --><r><?p i?><a id='1'/></r>\n", [(1, None)]),
        ("<r/>", []),
    ],
)
def test_elements_are_records(data: str, expected: list[tuple[Any, ...]], tmp_path: Path):
    """Attributes and children are columns; comments and instructions are nothing."""
    assert rows(data, tmp_path) == expected


def test_records_may_lie_deeper_where_the_source_names_them(tmp_path: Path):
    """What is around them is passed over; a name that no element has is reported."""
    data = "<r><head><x>1</x></head><body><a id='1'/><list><a id='2'/></list></body></r>"
    assert rows(data, tmp_path, record="a") == [(1, None), (2, None)]
    reason = rejected(data.encode(), tmp_path, SCHEMA, "xml", options={"record": "b"})
    assert reason["code"] == "xml_no_record"


def test_many_records_over_pieces_keep_their_order(tmp_path: Path):
    """Wherever the bytes and batches are cut, and in other encodings."""
    inside = "".join(f"<a id='{i}'><name>é{i}</name></a>\n" for i in range(5000))
    data = f"<?xml version='1.0' encoding='ISO-8859-1'?><r>{inside}</r>".encode("latin-1")
    read = accepted(data, tmp_path, SCHEMA, "xml", limits=IngestLimits(batch_rows=700))
    assert read == [{"id": i, "name": f"é{i}"} for i in range(5000)]


@pytest.mark.parametrize(
    ("data", "rule", "line"),
    [
        pytest.param("<r>\n<a id='x'/></r>", "value_type", 2, id="type"),
        pytest.param("<r>\n<a id='1' other='2'/></r>", "column_unknown", 2, id="unknown"),
        pytest.param("<r>\n<a id='1'><id>2</id></a></r>", "xml_record", 2, id="twice"),
        pytest.param("<r><a>\n<name><b/></name></a></r>", "xml_record", 1, id="nested"),
        pytest.param("<r><a>text</a></r>", "xml_record", 1, id="text between"),
        pytest.param("<r>\n<a id='1'/>", "xml_damaged", 2, id="cut"),
        pytest.param("<r>\n<a id='1'></r>", "xml_damaged", 2, id="not closed"),
        pytest.param("<r/>\n<r/>", "xml_damaged", 2, id="two documents"),
        pytest.param("", "xml_damaged", 1, id="empty"),
        pytest.param("<r><a id='1'/>&unknown;</r>", "xml_damaged", 1, id="an entity"),
        pytest.param("<r>" + "<b>" * 100 + "</r>", "xml_limits", 1, id="depth"),
        pytest.param("<r><a name='" + "x" * 300_000 + "'/></r>", "line_too_long", 1, id="long"),
        pytest.param("<r><a " + "x" * 300_000, "line_too_long", 1, id="endless tag"),
        pytest.param("<r><a><name>" + "x" * 300_000, "line_too_long", 1, id="endless text"),
    ],
)
def test_what_is_wrong_is_refused_at_its_line(data: str, rule: str, line: int, tmp_path: Path):
    """Each kind has its code; nothing is read in part."""
    limits = IngestLimits(line_bytes_max=100_000)
    reason = rejected(data.encode(), tmp_path, SCHEMA, "xml", limits=limits)
    assert (reason["code"], reason["line"]) == (rule, line)


@pytest.mark.parametrize(
    "doctype",
    [
        '<!DOCTYPE r [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;">]>',
        '<!DOCTYPE r [<!ENTITY x SYSTEM "file:///etc/passwd">]>',
        '<!DOCTYPE r SYSTEM "http://127.0.0.1:1/evil.dtd">',
        '<!DOCTYPE r [<!ENTITY % p SYSTEM "http://127.0.0.1:1/evil.dtd"> %p;]>',
    ],
)
def test_a_document_type_is_refused_unread(doctype: str, tmp_path: Path):
    """No entity expands, no file is read, no address is called."""
    data = f"{doctype}<r><a><name>&b;&x;</name></a></r>".encode()
    assert rejected(data, tmp_path, SCHEMA, "xml")["code"] == "xml_doctype"


def test_wrong_elements_are_put_aside_where_the_source_says_so(tmp_path: Path):
    """Those of the file's form and those of values; the others are records."""
    data = b"<r>\n<a id='1'/>\n<a id='x'/>\n<a><name><b/></name></a>\n<a id='2'/>\n</r>"
    drop = Drop(tmp_path, SCHEMA, "xml", on_bad_records="reject_rows")
    drop.put("a", data)
    assert drop.scan().accepted == 1, drop.reasons()
    assert [row["id"] for row in drop.rows()] == [1, 2]
    (record,) = drop.store.increment_rows.values()
    assert record.origin["rejected_rows"] == 2


@pytest.mark.parametrize("data", ["<r><a id='x'/><a id='1'/></r>", "<r><a id='1'/><a id='x'/></r>"])
def test_a_wrong_record_on_a_line_with_others_refuses_the_file(data: str, tmp_path: Path):
    """A place that several records share would put aside sound ones too."""
    reason = rejected(data.encode(), tmp_path, SCHEMA, "xml", on_bad_records="reject_rows")
    assert reason["code"] == "xml_limits"
