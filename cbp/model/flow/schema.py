"""Schemas of flows and their SQL types, as plain values, with a DDL parser.

A schema is written as in Spark, `"url STRING, n BIGINT NOT NULL"`, and means the same in every
engine. The set of types is closed on purpose: it has only types on which Spark, Delta, Arrow and
JSON agree. Absent on purpose, since readers disagree on them: unsigned integers, `VARIANT`,
intervals, `TIMESTAMP_NTZ`.

    >>> Schema.parse("url STRING, tags ARRAY<STRING>").names
    ('url', 'tags')

Invariant: `Schema.parse(str(schema)) == schema` (tests/cbp/model/flow/test_schema.py).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import NoReturn

from cbp.errors import DefinitionError, Mistake
from cbp.errors.message_limits import MISTAKES_MAX, shortened
from cbp.model.flow.attributes import attribute

_INTEGERS = ("BIGINT", "INT", "SMALLINT", "TINYINT")
_ATOMS = ("STRING", *_INTEGERS, "DOUBLE", "FLOAT", "BOOLEAN", "BINARY", "DATE", "TIMESTAMP")
_ALIASES = dict(LONG="BIGINT", INTEGER="INT", SHORT="SMALLINT", BYTE="TINYINT", REAL="FLOAT")
_NEAR = {
    name: type_
    for type_, names in {
        "STRING": "TEXT STR VARCHAR CHAR STRINGTYPE UTF8",
        "BIGINT": "INT64 LONGTYPE NUMBER UBIGINT",
        "INT": "INT32 INTEGERTYPE",
        "DOUBLE": "FLOAT64 DOUBLETYPE",
        "FLOAT": "FLOAT32",
        "BOOLEAN": "BOOL",
        "BINARY": "BYTES BLOB VARBINARY",
        "TIMESTAMP": "DATETIME TIME TIMESTAMPTZ TIMESTAMP_NTZ",
        "DECIMAL(p,s)": "NUMERIC",
        "ARRAY<T>": "LIST",
        "MAP<K,V>": "DICT",
    }.items()
    for name in names.split()
}
"""Names of types in other systems. They are refused, so that a schema has one spelling."""

DEPTH_MAX = 16
"""Maximum nesting of types, since all code that reads and writes them is recursive."""

COLUMNS_MAX = 2000
"""Maximum number of columns in one schema, fields of structs included."""

_PRECISION_MAX = 38
_SHOWN = 400

_TOKEN = re.compile(r"\s*([A-Za-z_][A-Za-z_0-9]*|[0-9]+|[<>(),:])")
_COLUMN = re.compile(r"[A-Za-z_][A-Za-z_0-9]*")
_WORD = re.compile(r"[^\s,<>():]*")
_QUOTED = re.compile(r"([`\"'])(?:(?!\1).)*\1?", re.DOTALL)
_OF_ONE_COLUMN = ("type_unknown", "column_reserved")
"""Codes of mistakes after which the parser can continue with the next column."""

_NAMES = (
    "a name has only letters (a-z, A-Z), digits and '_', begins with a letter, and has no quotes; "
    "rename the column in the program that writes the files, or in the stage that emits the records"
)
_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}\Z")


def is_name(text: str) -> bool:
    """Return whether `text` is a valid name of a dataflow, stage, source, input or output."""
    return bool(_NAME.match(text))


@dataclass(frozen=True, slots=True)
class DataType:
    """One type: an atom, `DECIMAL(p,s)`, `ARRAY<T>`, `MAP<K,V>` or `STRUCT<a: T>`.

    Attributes:
        kind: `STRING` and the other atoms, or `DECIMAL`, `ARRAY`, `MAP`, `STRUCT`.
        arguments: Element types of an array, a map or a struct.
        names: Field names of a struct, in the order of `arguments`.
        precision, scale: Those of a decimal; `0` for other types.
    """

    kind: str
    arguments: tuple[DataType, ...] = ()
    names: tuple[str, ...] = ()
    precision: int = 0
    scale: int = 0

    def __str__(self) -> str:
        if self.kind == "DECIMAL":
            return f"DECIMAL({self.precision},{self.scale})"
        if self.kind == "STRUCT":
            pairs = zip(self.names, self.arguments, strict=True)
            return "STRUCT<" + ", ".join(f"{name}: {type_}" for name, type_ in pairs) + ">"
        if self.arguments:
            return f"{self.kind}<{', '.join(map(str, self.arguments))}>"
        return self.kind

    @property
    def can_be_key(self) -> bool:
        """Whether values can be compared and hashed, so that groups are well defined."""
        return not self.arguments


@dataclass(frozen=True, slots=True)
class Field:
    """A named column."""

    name: str
    type: DataType
    nullable: bool = True

    def __str__(self) -> str:
        return f"{self.name} {self.type}" + ("" if self.nullable else " NOT NULL")


@dataclass(frozen=True, slots=True)
class Schema:
    """Columns of a flow, in order, with unique names that do not begin with `_`."""

    fields: tuple[Field, ...]
    _index: dict[str, int] = field(init=False, repr=False, compare=False, hash=False)
    _names: tuple[str, ...] = field(init=False, repr=False, compare=False, hash=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_index", {f.name: i for i, f in enumerate(self.fields)})
        object.__setattr__(self, "_names", tuple(self._index))

    @classmethod
    def parse(cls, text: str, *, where: str = "schema") -> Schema:
        """Read a DDL string such as `"url STRING, n BIGINT NOT NULL"`.

        Raises:
            DefinitionError: With code `schema_invalid`, `schema_too_wide`, `schema_too_deep`,
                `type_unknown`, `column_name`, `column_reserved` or `column_twice`. The message
                names the column and what is allowed.
        """
        return _Parser(text, where).schema()

    def __str__(self) -> str:
        return ", ".join(map(str, self.fields))

    def to_json(self) -> str:
        """Return the schema as DDL."""
        return str(self)

    @classmethod
    def from_json(cls, text: str) -> Schema:
        """Read the output of `to_json`."""
        return cls.parse(text)

    def __len__(self) -> int:
        return len(self.fields)

    def __contains__(self, name: object) -> bool:
        return name in self._index

    def __getitem__(self, name: str) -> Field:
        return self.fields[self._index[name]]

    @property
    def names(self) -> tuple[str, ...]:
        """Column names, in order."""
        return self._names

    def index(self, name: str) -> int:
        """Return the position of a column, counted from 0."""
        return self._index[name]

    def select(self, names: tuple[str, ...]) -> Schema:
        """Return the named columns, in the order of `names`."""
        return Schema(tuple(self[name] for name in names))


class _Parser:
    """A recursive descent parser of DDL schemas; every error names the place."""

    def __init__(self, text: str, where: str) -> None:
        self._where, self._text, self._at, self._depth = where, text, 0, 0
        self._columns = 0

    def schema(self) -> Schema:
        fields, found = list[Field](), list[Mistake]()
        while not fields or self._take(","):
            begin = self._at
            try:
                fields.append(self._column())
            except DefinitionError as error:
                found.append(error.mistake)
                if error.mistake.code not in _OF_ONE_COLUMN or len(found) > MISTAKES_MAX:
                    break
                fields.append(Field(f"c{len(fields)}", DataType("STRING")))
                self._skip_column(begin)
        if found:
            raise DefinitionError(*found)
        if self._text[self._at :].strip():
            self._fail("schema_invalid", f"unexpected {self._text[self._at :].strip()!r}")
        names = [column.name for column in fields]
        self._check_twice("column", names)
        self._check_attributes(names)
        return Schema(tuple(fields))

    def _skip_column(self, begin: int) -> None:
        """Continue after a wrong column, at the comma that ends it."""
        self._depth, inside = 0, 0
        for at, character in enumerate(self._text[begin:], begin):
            inside += (character in "<(") - (character in ">)")
            if character == "," and inside <= 0:
                self._at = at
                return
        self._at = len(self._text)

    def _check_twice(self, what: str, names: list[str]) -> None:
        seen: set[str] = set()
        for name in names:
            if name.lower() in seen:
                advice = "names must differ in more than case; rename one"
                self._fail("column_twice", f"{what} {name!r} is declared twice", advice)
            seen.add(name.lower())

    def _check_attributes(self, names: list[str]) -> None:
        """Refuse a column `from` beside `from_`: both would be the attribute `from_`."""
        for name in names:
            if attribute(name) != name and attribute(name) in names:
                message = (
                    f"columns {name!r} and {attribute(name)!r} would both be the attribute "
                    f"{attribute(name)!r} of a record"
                )
                self._fail("column_twice", message, "rename one")

    def _column(self) -> Field:
        name = self._name()
        if name.startswith("_"):
            why = "begins with '_' (reserved for columns of the service)"
            self._fail("column_reserved", f"column {name!r} {why}", _NAMES)
        type_ = self._type(name)
        if self._peek().upper() != "NOT":
            return Field(name, type_)
        self._next()
        if self._next().upper() != "NULL":
            self._fail("schema_invalid", f"column {name!r}: expected NULL after NOT")
        return Field(name, type_, nullable=False)

    def _name(self) -> str:
        while self._text[self._at : self._at + 1].isspace():
            self._at += 1
        word = _QUOTED.match(self._text, self._at) or _WORD.match(self._text, self._at)
        name = word[0] if word else ""
        if name and not _COLUMN.fullmatch(name):
            self._fail("column_name", f"{name} is not a valid column name", _NAMES)
        return self._word("a column name")

    def _type(self, column: str) -> DataType:
        self._columns += 1
        if self._columns > COLUMNS_MAX:
            message = f"there are more than {COLUMNS_MAX} columns (fields of structs included)"
            self._fail("schema_too_wide", message)
        word = self._word(f"a type for column {column!r}")
        kind = _ALIASES.get(word.upper(), word.upper())
        if kind in _ATOMS:
            return DataType(kind)
        if kind == "DECIMAL":
            return self._decimal(column)
        self._depth += 1
        if self._depth > DEPTH_MAX:
            message = f"column {column!r} is nested deeper than {DEPTH_MAX} levels"
            self._fail("schema_too_deep", message)
        nested = self._nested(kind, word, column)
        self._depth -= 1
        return nested

    def _nested(self, kind: str, word: str, column: str) -> DataType:
        if kind in ("ARRAY", "MAP"):
            self._expect("<")
            arguments = [self._type(column)]
            if kind == "MAP":
                self._expect(",")
                arguments.append(self._type(column))
            self._expect(">")
            return DataType(kind, tuple(arguments))
        if kind == "STRUCT":
            return self._struct(column)
        allowed = ", ".join((*_ATOMS, "DECIMAL(p,s)", "ARRAY<T>", "MAP<K,V>", "STRUCT<a: T>"))
        near = _NEAR.get(word.upper())
        write = f"write {near}, or" if near else "use"
        message = f"column {column!r}: {word!r} is not a type; {write} one of {allowed}"
        self._fail("type_unknown", message)

    def _decimal(self, column: str) -> DataType:
        precision, scale = 10, 0
        if self._take("("):
            precision = self._number(column)
            if self._take(","):
                scale = self._number(column)
            self._expect(")")
        if not (1 <= precision <= _PRECISION_MAX and 0 <= scale <= precision):
            message = (
                f"column {column!r}: DECIMAL({precision},{scale}) is out of range (precision from "
                f"1 to {_PRECISION_MAX}, scale from 0 to the precision)"
            )
            self._fail("type_unknown", message)
        return DataType("DECIMAL", precision=precision, scale=scale)

    def _struct(self, column: str) -> DataType:
        names, arguments = list[str](), list[DataType]()
        self._expect("<")
        while not names or self._take(","):
            names.append(self._word(f"a field name in {column!r}"))
            self._take(":")
            arguments.append(self._type(column))
        self._expect(">")
        self._check_twice(f"column {column!r}: field", names)
        return DataType("STRUCT", tuple(arguments), tuple(names))

    def _number(self, column: str) -> int:
        token = self._next()
        if not token.isdigit() or len(token) > len(str(_PRECISION_MAX)):
            self._fail("type_unknown", f"column {column!r}: expected a number, got {token!r}")
        return int(token)

    def _word(self, what: str) -> str:
        token = self._next()
        if not token or not (token[0].isalpha() or token[0] == "_"):
            message = f"expected {what}, got {_shown(token)}"
            self._fail("schema_invalid", message, "write it as in 'url STRING, n BIGINT'")
        return token

    def _peek(self) -> str:
        match = _TOKEN.match(self._text, self._at)
        return match[1] if match else ""

    def _next(self) -> str:
        if match := _TOKEN.match(self._text, self._at):
            self._at = match.end()
            return match[1]
        if rest := self._text[self._at :].strip():
            self._fail("schema_invalid", f"unexpected {rest!r}")
        return ""

    def _take(self, token: str) -> bool:
        if self._peek() != token:
            return False
        self._next()
        return True

    def _expect(self, token: str) -> None:
        got = self._next()
        if got != token:
            self._fail("schema_invalid", f"expected {token!r}, got {_shown(got)}")

    def _fail(self, code: str, message: str, advice: str = "") -> NoReturn:
        text = f"{shortened(message, _SHOWN)} in {shortened(self._text, _SHOWN)!r}"
        text += advice and f"; {advice}"
        raise DefinitionError(Mistake(code, self._where, text))


def _shown(token: str) -> str:
    return repr(token) if token else "the end of the text"
