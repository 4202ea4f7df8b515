"""Types and schemas: what is read, what is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cbp.errors import DefinitionError
from cbp.model.flow.schema import DataType, Field, Schema, is_name

ATOMS = [
    "STRING",
    "BIGINT",
    "INT",
    "SMALLINT",
    "TINYINT",
    "DOUBLE",
    "FLOAT",
    "BOOLEAN",
    "BINARY",
    "DATE",
    "TIMESTAMP",
]
NAMES = st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True).map(lambda name: f"c_{name}")


@st.composite
def decimals(draw: st.DrawFn) -> DataType:
    precision = draw(st.integers(1, 38))
    return DataType("DECIMAL", precision=precision, scale=draw(st.integers(0, precision)))


def nested(inner: st.SearchStrategy[DataType]) -> st.SearchStrategy[DataType]:
    arrays = inner.map(lambda item: DataType("ARRAY", (item,)))
    maps = st.tuples(inner, inner).map(lambda pair: DataType("MAP", pair))
    structs = st.lists(st.tuples(NAMES, inner), min_size=1, max_size=3, unique_by=lambda f: f[0])
    return (
        arrays
        | maps
        | structs.map(
            lambda fields: DataType(
                "STRUCT", tuple(t for _, t in fields), tuple(n for n, _ in fields)
            )
        )
    )


TYPES = st.recursive(st.sampled_from(ATOMS).map(DataType) | decimals(), nested, max_leaves=5)
SCHEMAS = st.lists(
    st.builds(Field, NAMES, TYPES, st.booleans()),
    min_size=1,
    max_size=5,
    unique_by=lambda f: f.name,
).map(lambda fields: Schema(tuple(fields)))


@given(SCHEMAS)
def test_a_schema_is_read_back_as_it_was_written(schema: Schema) -> None:
    """`parse(str(schema)) == schema`, for every type and nesting."""
    assert Schema.parse(str(schema)) == schema


def test_spelling_does_not_matter() -> None:
    """Types in any case, with aliases and any space, are the same types."""
    assert Schema.parse("a  long,\n b Array < String >not null") == Schema.parse(
        "a BIGINT, b ARRAY<STRING> NOT NULL"
    )
    assert Schema.parse("a DECIMAL") == Schema.parse("a DECIMAL(10,0)")
    assert Schema.parse("a STRUCT<b INT>") == Schema.parse("a STRUCT<b: INT>")


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("a VARIANT", "type_unknown"),
        ("a TIMESTAMP_NTZ", "type_unknown"),
        ("a UINT", "type_unknown"),
        ("a ARRAY<VARIANT>", "type_unknown"),
        ("a DECIMAL(39,0)", "type_unknown"),
        ("a DECIMAL(5,6)", "type_unknown"),
        ("a DECIMAL(x)", "type_unknown"),
        ("a INT, A STRING", "column_twice"),
        ("from INT, from_ STRING", "column_twice"),
        ("a STRUCT<b: INT, B: STRING>", "column_twice"),
        ("_a INT", "column_reserved"),
        ("größe INT", "column_name"),
        ("a-b INT", "column_name"),
        ("a INT, a.b INT", "column_name"),
        ("`my col` INT", "column_name"),
        ("'a' INT", "column_name"),
        ("", "schema_invalid"),
        ("a", "schema_invalid"),
        ("a INT,", "schema_invalid"),
        ("a INT b INT", "schema_invalid"),
        ("a INT NOT", "schema_invalid"),
        ("a ARRAY<INT", "schema_invalid"),
        ("a MAP<INT>", "schema_invalid"),
        ("a INT; drop", "schema_invalid"),
        ("1a INT", "column_name"),
    ],
)
def test_a_wrong_schema_names_rule_place_and_text(text: str, rule: str) -> None:
    """Each rule has its code; the message holds where it stood and what was written."""
    with pytest.raises(DefinitionError) as caught:
        Schema.parse(text, where="sources.pages.schema")
    mistake = caught.value.mistake
    assert mistake.code == rule
    assert mistake.where == "sources.pages.schema"
    assert repr(text) in mistake.message


def test_an_unknown_type_says_which_there_are() -> None:
    """The message lists the closed set of types."""
    with pytest.raises(DefinitionError, match=r"TIMESTAMP, DECIMAL\(p,s\), ARRAY<T>"):
        Schema.parse("a VARIANT")


def test_columns_are_found_by_name() -> None:
    """Position, membership and selection go by name."""
    schema = Schema.parse("a INT, b STRING NOT NULL, c DATE")
    assert (len(schema), schema.names, schema.index("c")) == (3, ("a", "b", "c"), 2)
    assert "b" in schema
    assert "d" not in schema
    assert str(schema.select(("c", "b"))) == "c DATE, b STRING NOT NULL"
    assert not schema["b"].nullable


def test_only_types_without_arguments_are_keys() -> None:
    """Atoms and decimals can be compared and hashed; nested types cannot."""
    schema = Schema.parse("a INT, b DECIMAL(20,2), c ARRAY<INT>, d STRUCT<x: INT>")
    assert [field.type.can_be_key for field in schema.fields] == [True, True, False, False]


@pytest.mark.parametrize("name", ["a", "crawl_queue", "a1", "x" * 63])
def test_valid_names(name: str) -> None:
    """Lower-case letters, digits and underscores, beginning with a letter."""
    assert is_name(name)


@pytest.mark.parametrize("name", ["", "A", "1a", "_a", "a-b", "a.b", "a/b", "ä", "a\n", "x" * 64])
def test_invalid_names(name: str) -> None:
    """Nothing that could be a path, a flow of a stage, or another spelling."""
    assert not is_name(name)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("a " + "ARRAY<" * 20_000 + "INT" + ">" * 20_000, "schema_too_deep"),
        ("a " + "STRUCT<x " * 20_000 + "INT" + ">" * 20_000, "schema_too_deep"),
        ("a " + "MAP<INT," * 17 + "INT" + ">" * 17, "schema_too_deep"),
        ("a DECIMAL(" + "9" * 10_000 + ")", "type_unknown"),
    ],
    ids=["arrays", "structs", "maps", "digits"],
)
def test_a_schema_has_bounds(text: str, code: str) -> None:
    """Depth and digits are bounded, and a mistake repeats only the beginning of a long text."""
    with pytest.raises(DefinitionError) as refused:
        Schema.parse(text)
    assert refused.value.mistake.code == code
    assert len(refused.value.message) < 2_000


def test_a_schema_of_the_greatest_depth_is_read() -> None:
    """What is refused is what is deeper, not what is deep."""
    text = "a " + "ARRAY<" * 16 + "INT" + ">" * 16 + ", b " + "ARRAY<INT>"
    assert str(Schema.parse(text)) == text
