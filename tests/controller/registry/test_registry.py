"""Registry: only allowed names resolve, and any text gives a document or a clear error."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cbp import Input, Output, TranslateRecords
from cbp.errors import CbpError, DataflowInvalidError, DefinitionError, Mistake
from controller.registry import Registry, parse_document
from controller.registry.text import DEPTH_MAX, TEXT_BYTES_MAX, VALUES_MAX


class Copy(TranslateRecords):
    """Copy every record."""

    records = Input("word STRING")
    copies = Output("word STRING")

    def __init__(self, times: int = 1) -> None:
        if times < 1:
            raise ValueError("times must be positive")
        self.times = times

    def translate(self, record: Any, out: Any) -> None:
        for _ in range(self.times):
            out.copies(word=record.word)


class Point:
    """An entry point, as far as the registry looks at it."""

    def __init__(self, name: str, target: Any, package: str = "cbp") -> None:
        self.name, self.value = name, f"{package}:{name}"
        self.dist = SimpleNamespace(name=package)
        self._target = target

    def load(self) -> Any:
        if isinstance(self._target, Exception):
            raise self._target
        return self._target


def registry(*points: Any, allowed: Sequence[str] = ("cbp",)) -> Registry:
    return Registry(allowed, entry_points=lambda: points)


def rule_of(call: Callable[..., object], *args: Any) -> Mistake:
    with pytest.raises(DefinitionError) as caught:
        call(*args)
    return caught.value.mistake


def test_a_name_resolves_with_its_parameters():
    """A document's name and parameters make the translator."""
    made = registry(Point("copy", Copy)).resolve("copy", {"times": 2})
    assert isinstance(made, Copy)
    assert made.times == 2


@pytest.mark.parametrize("package", ["other", "cbp2"])
def test_packages_that_are_not_allowed_do_not_exist(package):
    """What the operator did not allow can neither be listed, resolved nor imported."""
    actual = registry(Point("copy", AssertionError("was imported"), package))
    assert actual.names() == ()
    assert rule_of(actual.resolve, "copy", {}).code == "translator_unknown"


def test_package_names_may_be_spelled_in_any_way():
    """`My_Flows` and `my-flows` are one distribution."""
    assert registry(Point("copy", Copy, "My_Flows"), allowed=["my-flows"]).names() == ("copy",)


@pytest.mark.parametrize("name", ["copy", "Copy"])
def test_an_unknown_name_without_any_translator_names_the_setting(name):
    """There is no list to choose from, so the message does not offer one."""
    mistake = rule_of(registry().resolve, name, {})
    assert mistake.code == "translator_unknown"
    assert mistake.message.endswith("allow a package (CBP_ALLOWED_PACKAGES)")


def test_an_unknown_name_is_answered_with_near_ones():
    """A typing mistake is answered with what was meant."""
    actual = registry(Point("url_count", Copy), Point("merge", Copy))
    mistake = rule_of(actual.resolve, "url_cuont", {})
    assert mistake.code == "translator_unknown"
    assert "url_count" in mistake.message
    assert "merge" not in mistake.message


def test_wrong_parameters_name_the_accepted_ones():
    """The error of a wrong parameter lists the right ones."""
    mistake = rule_of(registry(Point("copy", Copy)).resolve, "copy", {"tims": 2})
    assert mistake.code == "parameters_invalid"
    assert "tims" in mistake.message
    assert "times: int = 1" in mistake.message.replace("'", "")
    assert "test_registry.py" in mistake.place


def test_a_constructor_that_raises_is_the_authors_mistake():
    """An exception of the author's constructor becomes a mistake with its text and place."""
    mistake = rule_of(registry(Point("copy", Copy)).resolve, "copy", {"times": 0})
    assert mistake.code == "translator_failed"
    assert "times must be positive" in mistake.message
    assert "test_registry.py" in mistake.place


def test_a_module_that_cannot_be_imported_is_said_so():
    """A broken package stops the registration, not the service."""
    actual = registry(Point("copy", ImportError("no module named x")))
    mistake = rule_of(actual.resolve, "copy", {})
    assert mistake.code == "translator_failed"
    assert "no module named x" in mistake.message


@pytest.mark.parametrize("target", [dict, 7])
def test_what_is_no_translator_is_refused(target):
    """An entry point must make a translator."""
    mistake = rule_of(registry(Point("copy", target)).resolve, "copy", {})
    assert mistake.code == "translator_invalid"


def test_two_packages_with_one_name_are_ambiguous():
    """A name never means one package today and another tomorrow."""
    actual = registry(Point("copy", Copy), Point("copy", Copy, "b"), allowed=["cbp", "b"])
    assert rule_of(actual.resolve, "copy", {}).code == "translator_ambiguous"


def test_one_target_that_is_listed_twice_is_no_ambiguity():
    """An editable install may list an entry point twice."""
    point = Point("copy", Copy)
    assert isinstance(registry(point, point).resolve("copy", {}), Copy)


def test_a_translator_describes_itself():
    """A listing shows package, first line and parameters."""
    info = registry(Point("copy", Copy)).describe("copy")
    assert (info.package, info.summary) == ("cbp", "Copy every record.")
    assert "times" in info.parameters


def test_compile_lists_every_mistake():
    """One registration is answered with all its mistakes at once."""
    document = {
        "name": "d",
        "sources": {"words": {"schema": "word STRNG"}},
        "stages": {
            "a": {"translator": "cpy", "inputs": {"records": "words"}},
            "b": {"translator": "copy", "inputs": {"records": "nowhere"}},
        },
    }
    with pytest.raises(DataflowInvalidError) as caught:
        registry(Point("copy", Copy)).compile(document, ("stages.a",))
    codes = {mistake.code for mistake in caught.value.mistakes}
    assert codes == {"name_twice", "type_unknown", "translator_unknown", "flow_unknown"}


BOTH = [
    (
        '{"name": "d", "stages": {"count": {"inputs": {"links": "a", "links": "b"}}}}',
        "application/json; charset=utf-8",
    ),
    (
        "name: d\nstages:\n  count:\n    inputs: {links: a, links: b}\n",
        "application/yaml",
    ),
]


@pytest.mark.parametrize(("text", "content_type"), BOTH)
def test_pairs_that_stand_twice_are_reported(text, content_type):
    """A mapping cannot hold a pair twice, so the parser says where it was."""
    document, duplicates = parse_document(text, content_type)
    assert duplicates == ("stages.count.inputs.links",)
    assert document["stages"]["count"]["inputs"] == {"links": "b"}


def test_yaml_means_what_yaml_1_2_says():
    """Nobody's country code becomes a boolean, nor a date an object."""
    text = "{a: no, b: 010, c: 2026-01-01, d: 0o17, e: 1e3, f: '1', g: !!str 2, h: ~, i: true}"
    document, _ = parse_document(text, "text/yaml")
    expected = ["no", 10, "2026-01-01", 15, 1000.0, "1", "2", None, True]
    assert list(document.values()) == expected
    assert [type(value) for value in document.values()] == [type(value) for value in expected]


def test_a_name_is_a_text_however_it_looks():
    """`null: NA` among the options of a source needs no quotes; nor does it in JSON."""
    document, _ = parse_document("{null: NA, true: 1, 1: 2, ~: 3}", "text/yaml")
    assert document == {"null": "NA", "true": 1, "1": 2, "~": 3}


WRONG = [
    ("a: [1\n", "text/yaml", "document_syntax", "line 2, column 1"),
    ("a: 1\nb: : 2", "text/yaml", "document_syntax", "line 2"),
    ('{"a": 1,\n "b" 2}', "application/json", "document_syntax", "line 2, column 6"),
    ("a: !!python/object/apply:os.system [x]", "text/yaml", "document_syntax", "line 1"),
    ("--- {}\n--- {}", "text/yaml", "document_syntax", "line 2"),
    ("a: *x", "text/yaml", "document_syntax", "line 1"),
    ("[a]: 1", "text/yaml", "document_syntax", "line 1"),
    ("\x00", "text/yaml", "document_syntax", ""),
    ("- a", "text/yaml", "document_invalid", "document"),
    ("", "text/yaml", "document_invalid", "document"),
    ("a: .nan", "text/yaml", "document_invalid", "a"),
    ('{"a": {"b": Infinity}}', "application/json", "document_invalid", "a.b"),
    ('{"a": "\\ud800"}', "application/json", "document_invalid", "a"),
    ('{"a": ' + "1" * 5000 + "}", "application/json", "document_invalid", ""),
    ("[" * (TEXT_BYTES_MAX - 1), "text/yaml", "document_too_large", ""),
    ("[" * 200_000, "application/json", "document_too_large", ""),
    ('{"a": "' + "x" * TEXT_BYTES_MAX + '"}', "application/json", "document_too_large", ""),
    ("a: [" + "1," * VALUES_MAX + "1]", "text/yaml", "document_too_large", "a"),
    ('{"a": [' + "1," * VALUES_MAX + "1]}", "application/json", "document_too_large", ""),
    ("{}", "text/plain", "content_type_unknown", ""),
]


@pytest.mark.timeout(20)
@pytest.mark.parametrize(("text", "content_type", "code", "where"), WRONG)
def test_text_that_is_no_document_is_refused_with_its_place(text, content_type, code, where):
    """Wrong text gets one coded mistake with line and column, whatever is wrong with it."""
    with pytest.raises(DataflowInvalidError) as caught:
        parse_document(text, content_type)
    (mistake,) = caught.value.mistakes
    assert mistake.code == code
    assert where in mistake.where


def test_aliases_count_with_what_they_stand_for():
    """A small text of aliases cannot become a large document."""
    lines = ["a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 9)]
    with pytest.raises(DataflowInvalidError) as caught:
        parse_document("\n".join(lines), "text/yaml")
    assert caught.value.mistakes[0].code == "document_too_large"
    document, _ = parse_document("a: &x {n: 1}\nb: *x", "text/yaml")
    assert document == {"a": {"n": 1}, "b": {"n": 1}}


def test_the_limit_of_levels_is_exact():
    """A document of the last allowed level is read, one level more is not."""
    for text, kind in [("[" * DEPTH_MAX + "]" * DEPTH_MAX, "application/json")]:
        inside = text[1:-1]
        assert parse_document(f'{{"a": {inside}}}', kind)[0]
        with pytest.raises(DataflowInvalidError):
            parse_document(f'{{"a": [{text}]}}', kind)


plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=5), plain, max_size=4))
def test_json_text_is_read_as_json_reads_it(document):
    """Without duplicates and within the limits nothing is changed."""
    assert parse_document(json.dumps(document), "application/json") == (document, ())


@given(st.text(alphabet="ab:-[]{}&*!#|>'\",\n 1\t", max_size=60))
def test_any_text_gives_a_document_or_a_coded_error(text):
    """No text makes the parser raise anything but the library's error."""
    for content_type in ("application/json", "application/yaml"):
        try:
            document, _ = parse_document(text, content_type)
        except CbpError as error:
            assert isinstance(error, DataflowInvalidError)  # noqa: PT017
        else:
            json.dumps(document, allow_nan=False)
