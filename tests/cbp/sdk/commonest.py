"""The mistakes that authors make most, as files."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cbp.model.author.source_modules import load_sources
from cbp.model.dataflow.dataflow import Dataflow
from controller.registry import Registry, TranslatorFiles
from tests.authored import write

__all__ = [
    "AT_CALLS",
    "AT_DECLARATION",
    "HELPER",
    "Declared",
    "Mistake",
    "compiled",
    "file_of",
    "line_of",
]

HELPER = "common_helper.py"
_HELPER = "def parse(text):\n    return clean(text)\n\n\ndef clean(text):\n    return int(text)\n"

_FILE = """\
from datetime import UTC, date, datetime
from decimal import Decimal

import common_helper
from cbp import Input, Output, State, Translate, View


class Count(Translate):
    urls = Input("url STRING, n BIGINT", route_by="url")
    seen = State("url STRING, n BIGINT")
    latest = View("url STRING, n BIGINT", key="url")
    totals = Output("url STRING, n BIGINT NOT NULL")
    prices = Output("price DECIMAL(10,2)")
    times = Output("at TIMESTAMP")

    def translate(self, key, group, out):
"""


@dataclass(frozen=True)
class Mistake:
    """A mistake in the body of `translate`: its line ends with `# here`.

    Attributes:
        name: A word for it.
        body: The body.
        says: The expected cause, with what to do; HELPER is replaced by the helper's file.
        error_code: The code of the error.
    """

    name: str
    body: str
    says: str
    error_code: str = "author_code_failed"

    @property
    def code(self) -> str:
        """The author's file."""
        body = self.body if "# here" in self.body else f"{self.body}  # here"
        return _FILE + textwrap.indent(textwrap.dedent(body).strip(), "        ") + "\n"


@dataclass(frozen=True)
class Declared:
    """A mistake that is found before a call: in the file, the line ends with `# here`.

    Attributes:
        name: A word for it.
        old: A part of the file.
        new: What the author wrote instead.
        mistake_code: The code of the mistake.
        says: Its message; FILE is replaced by the name of the file.
    """

    name: str
    old: str
    new: str
    mistake_code: str
    says: str

    @property
    def code(self) -> str:
        """The author's file."""
        code = f"{_FILE}        out.totals(url=key.url, n=1)\n"
        assert self.old in code
        return code.replace(self.old, self.new)


_CALL = "write out.totals(url=..., n=...)"
_AS_RECORD = (
    "to emit a dict, write out.totals(**values); to emit a record or a tuple, out.totals(*values)"
)
_NULLS = (
    "a column without NOT NULL can be None: skip records in which it is None, as in "
    "`if row.n is not None`, or declare the column NOT NULL"
)
_ITERATOR = (
    "a flow of a group is an iterator: put its records into a list, as in rows = list(group.urls)"
)

AT_CALLS = (
    Mistake(
        "column",
        "print([row.link for row in group.urls])",
        "AttributeError: 'urls' object has no attribute 'link'; use one of url, n",
    ),
    Mistake(
        "row_as_dict",
        "print([row['url'] for row in group.urls])",
        "TypeError: tuple indices must be integers or slices, not str; the columns of a record or "
        "a key are attributes: write row.url, not row['url']",
    ),
    Mistake(
        "output",
        "out.total(url=key.url, n=1)",
        "AttributeError: 'out' object has no attribute 'total'; use one of totals, prices, times, "
        "seen, latest",
    ),
    Mistake(
        "out_called",
        "out(url=key.url, n=1)",
        "TypeError: 'out' object is not callable; to emit a record, call an output or a state "
        "of `out`, as in out.totals(url=key.url)",
    ),
    Mistake(
        "flow",
        "print(list(group.url))",
        "AttributeError: 'group' object has no attribute 'url'; use one of urls, seen, latest",
    ),
    Mistake(
        "group_iterated",
        "print([row for row in group])",
        "TypeError: 'group' object is not iterable; iterate over a flow of the group, as in "
        "`for row in group.urls`",
    ),
    Mistake(
        "keyword",
        "out.totals(link=key.url, n=1)",
        f"TypeError: out.totals() got an unexpected keyword argument 'link'; {_CALL}",
    ),
    Mistake(
        "too_few",
        "out.totals(url=key.url)",
        "TypeError: out.totals() missing 1 required positional argument: 'n'; "
        f"{_CALL}; {_AS_RECORD}",
    ),
    Mistake(
        "as_a_dict",
        "out.totals({'url': key.url, 'n': 1})",
        "TypeError: out.totals() missing 1 required positional argument: 'n'; "
        f"{_CALL}; {_AS_RECORD}",
    ),
    Mistake(
        "too_many",
        "out.totals(key.url, 1, 2)",
        f"TypeError: out.totals() takes 2 positional arguments but 3 were given; {_CALL}",
    ),
    Mistake(
        "text_for_number",
        "out.totals(url=key.url, n='1')",
        "TypeError: out.totals: column 'n' is declared BIGINT, got '1' (str): expected an integer; "
        "write int(value)",
    ),
    Mistake(
        "float_for_number",
        "out.totals(url=key.url, n=1.5)",
        "TypeError: out.totals: column 'n' is declared BIGINT, got 1.5 (float): expected an "
        "integer; write round(value), or declare the column DOUBLE",
    ),
    Mistake(
        "bytes_for_text",
        "out.totals(url=b'a', n=1)",
        "TypeError: out.totals: column 'url' is declared STRING, got b'a' (bytes): expected str; "
        "write value.decode()",
    ),
    Mistake(
        "null",
        "out.totals(url=key.url, n=None)",
        "TypeError: out.totals: column 'n' is declared BIGINT NOT NULL, got None: emit a value, or "
        "declare the column without NOT NULL",
    ),
    Mistake(
        "null_added",
        "print(sum(row.n for row in group.urls))",
        f"TypeError: unsupported operand type(s) for +: 'int' and 'NoneType'; {_NULLS}",
    ),
    Mistake(
        "null_compared",
        "print([row for row in group.urls if row.n > 1])",
        f"TypeError: '>' not supported between instances of 'NoneType' and 'int'; {_NULLS}",
    ),
    Mistake(
        "float_for_decimal",
        "out.prices(price=1.1)",
        "TypeError: out.prices: column 'price' is declared DECIMAL(10,2), got 1.1 (float): "
        "expected an int or a Decimal; write Decimal(str(value))",
    ),
    Mistake(
        "decimal_times_float",
        "out.prices(price=Decimal('1.1') * 1.5)",
        "TypeError: unsupported operand type(s) for *: 'decimal.Decimal' and 'float'; a DECIMAL is "
        "not a float: write Decimal('1.5') instead of 1.5, or float(value)",
    ),
    Mistake(
        "decimal_places",
        "out.prices(price=Decimal('1.123'))",
        "TypeError: out.prices: column 'price' is declared DECIMAL(10,2), got Decimal('1.123') "
        "(Decimal): 1.123 has more than 2 decimal places; to round it, write "
        "`with decimal.localcontext(traps=[]): value = round(value, 2)`",
    ),
    Mistake(
        "decimal_is_rounded",
        "out.prices(price=Decimal(1) / 3)",
        "Inexact: [<class 'decimal.Inexact'>]; the result has more than the 38 digits that a "
        "DECIMAL can hold, and rounding must be explicit: write `with "
        "decimal.localcontext(traps=[]): value = round(value, 2)`",
    ),
    Mistake(
        "naive_time",
        "out.times(at=datetime(2026, 1, 1))",
        "TypeError: out.times: column 'at' is declared TIMESTAMP, got datetime.datetime(2026, 1, "
        "1, 0, 0) (datetime): a time without a zone is ambiguous; give it a zone, as in "
        "value.replace(tzinfo=UTC). For the current time use group.run.time",
    ),
    Mistake(
        "naive_difference",
        "print(datetime(2026, 1, 1) - datetime(2026, 1, 1, tzinfo=UTC))",
        "TypeError: can't subtract offset-naive and offset-aware datetimes; a TIMESTAMP is a time "
        "in UTC, but the other time has no time zone: add one, as in value.replace(tzinfo=UTC). "
        "For the current time use group.run.time",
    ),
    Mistake(
        "date_for_time",
        "out.times(at=date(2026, 1, 1))",
        "TypeError: out.times: column 'at' is declared TIMESTAMP, got datetime.date(2026, 1, 1) "
        "(date): expected datetime; write datetime(value.year, value.month, value.day, tzinfo=UTC)",
    ),
    Mistake(
        "text_for_time",
        "out.times(at='2026-01-01')",
        "TypeError: out.times: column 'at' is declared TIMESTAMP, got '2026-01-01' (str): expected "
        "datetime; write datetime.fromisoformat(value), with a zone",
    ),
    Mistake(
        "unhashable",
        "print({[row.url] for row in group.urls})",
        "TypeError: unhashable type: 'list'; a list, a dict or a set cannot be the key of a dict "
        "or an element of a set: write tuple(value)",
    ),
    Mistake(
        "length",
        "print(len(group.urls))",
        f"TypeError: object of type 'flow' has no len(); {_ITERATOR}",
    ),
    Mistake(
        "first",
        "print(group.urls[0])",
        f"TypeError: 'flow' object is not subscriptable; {_ITERATOR}",
    ),
    Mistake(
        "read_twice",
        """
        n = len(list(group.urls))
        print([n for row in group.urls])  # here
        """,
        "the flow 'urls' was read a second time, but a flow can be read only once. Put its records "
        "into a list, rows = list(group.urls), or use one iterator for all reads, rows = "
        "iter(group.urls)",
        "input_read_twice",
    ),
    Mistake(
        "record_changed",
        """
        for row in group.urls:
            row.n = 1  # here
        """,
        "AttributeError: can't set attribute; a record cannot be changed: emit a new one, as in "
        "out.totals(**{**row._asdict(), 'n': 1})",
    ),
    Mistake(
        "changed_while_read",
        """
        n = {row.url: 1 for row in group.urls}
        for url in n:  # here
            n[url + "x"] = 1
        """,
        "RuntimeError: dictionary changed size during iteration; iterate over a copy, as in "
        "`for one in list(values)`",
    ),
    Mistake(
        "other_key",
        "out.seen(url='z', n=1)",
        "state 'seen': the group ('a',) emitted a record with the key ('z',), but a group can "
        "replace only its own state. To append a record to the state of another key, write "
        "out.seen.remote(...)",
        "state_key_foreign",
    ),
    Mistake(
        "two_of_a_key",
        "out.latest(key.url, 1), out.latest(key.url, 2)",
        "a group emitted two records with the key ('a',) to 'latest'. Emit only one of them, or "
        "declare a key in which they differ",
        "view_key_twice",
    ),
    Mistake(
        "set_on_out",
        "out.totals = key.url, 1",
        "out.totals was set, but only calls in the same task would see this value. Keep the value "
        "in a local variable, or in a State",
        "author_state_changed",
    ),
    Mistake(
        "in_a_helper",
        "print(common_helper.parse(key.url))",
        "ValueError: invalid literal for int() with base 10: 'a' (raised in clean, HELPER:6)",
    ),
    Mistake(
        "package",
        "import absent_package.part",
        "ModuleNotFoundError: No module named 'absent_package'; install the package where the "
        "stage runs, in the environment of the service and of Spark's workers: python -m pip "
        "install absent_package. Import it at the top of the file, so that `cbp validate` notices "
        "a missing package",
    ),
    Mistake(
        "relative_file",
        "print(open('words.txt').read())",
        "FileNotFoundError: [Errno 2] No such file or directory: 'words.txt'; the path is "
        "relative to the working folder of the process that runs the stage, which differs between "
        "machines. Pass the translator an absolute path as a parameter. To read a file beside the "
        "translator's module, open Path(__file__).with_name(...) in its __init__",
    ),
    Mistake(
        "assertion", "assert key.url == 'x'", "AssertionError in `assert key.url == 'x'  # here`"
    ),
    Mistake(
        "memory",
        "raise MemoryError",
        "MemoryError in `raise MemoryError  # here`; the process that runs the stage is out of "
        "memory: loop over group.<flow> without list(...), or keep sums instead of records",
    ),
    Mistake(
        "key_as_value",
        "out.totals(url=key, n=1)",
        "TypeError: out.totals: column 'url' is declared STRING, got Key(url='a') (Key): expected "
        "str; this is a record, whose columns are attributes: write value.url",
    ),
    Mistake(
        "records_as_value",
        "out.totals(url=list(group.urls), n=1)",
        "TypeError: out.totals: column 'url' is declared STRING, got [urls(url='a', n=None)] "
        "(list): expected str; this is a list of records: emit one record for each, in a loop",
    ),
    Mistake(
        "column_of_a_flow",
        "print(group.urls.url)",
        "AttributeError: 'flow' object has no attribute 'url'; a flow of a group is an iterator "
        "of records, and only a record has columns: write `for row in group.urls`, or `rows = "
        "list(group.urls)`",
    ),
    Mistake(
        "appended",
        "out.totals.append(url=key.url, n=1)",
        "AttributeError: 'function' object has no attribute 'append'; emit a record by calling "
        "the function, as in out.totals(url=key.url)",
    ),
    Mistake(
        "null_method",
        "print([row.n.bit_length() for row in group.urls])",
        f"AttributeError: 'NoneType' object has no attribute 'bit_length'; {_NULLS}",
    ),
    Mistake(
        "recursion",
        "self.translate(key, group, out)",
        "RecursionError: maximum recursion depth exceeded; a function recurses endlessly, or too "
        "deeply: write a loop",
    ),
)
"""Mistakes in the body of `translate`."""

_SEEN = '    seen = State("url STRING, n BIGINT")\n'
_AFTER = _FILE.partition(_SEEN)[2].rpartition("    def ")[0]
_TRANSLATE = "    def translate(self, key, group, out):\n"
_TOTALS = '    totals = Output("url STRING, n BIGINT NOT NULL")\n'
_EMPTY = (
    "Count.seen: this state is read but never emitted, so it is always empty. A group keeps only "
    "state records that it emits again: write out.seen(...), or declare keep=True to keep all "
    "records"
)

AT_DECLARATION = (
    Declared(
        "self_forgotten",
        _TRANSLATE,
        "    def translate(key, group, out):  # here\n",
        "translate_parameters",
        "Count.translate: expected translate(self, key, group, out), got translate(key, group, "
        "out)",
    ),
    Declared(
        "parameter_more",
        _TRANSLATE,
        "    def translate(self, key, group, out, more):  # here\n",
        "translate_parameters",
        "Count.translate: expected translate(self, key, group, out), got translate(self, key, "
        "group, out, more)",
    ),
    Declared(
        "generator",
        f"{_TRANSLATE}        out.totals(url=key.url, n=1)\n",
        "    def translate(self, key, group, out):  # here\n        yield key.url, 1\n",
        "translate_kind",
        "Count.translate: translate must be a plain function, without yield and await; emit "
        "records with out.<output>(...)",
    ),
    Declared(
        "never_emitted",
        _SEEN + _AFTER + _TRANSLATE + "        out.totals(url=key.url, n=1)\n",
        _SEEN.replace("\n", "  # here\n")
        + _AFTER
        + _TRANSLATE
        + "        out.totals(url=key.url, n=1 + sum(row.n for row in group.seen))\n",
        "state_unemitted",
        _EMPTY,
    ),
    Declared(
        "no_schema",
        _TOTALS,
        "    totals = Output()  # here\n",
        "translator_failed",
        "FILE: cannot be imported: TypeError: Output.__init__() missing 1 required positional "
        "argument: 'schema'; declare the columns with their types, as in Output('url STRING, n "
        "BIGINT')",
    ),
    Declared(
        "no_types",
        _TOTALS,
        '    totals = Output("url, n")  # here\n',
        "schema_invalid",
        "Count.totals: expected a type for column 'url', got ',' in 'url, n'; write it as in "
        "'url STRING, n BIGINT'",
    ),
    Declared(
        "type_of_another_system",
        _TOTALS,
        '    totals = Output("url TEXT")  # here\n',
        "type_unknown",
        "Count.totals: column 'url': 'TEXT' is not a type; write STRING, or one of STRING, BIGINT, "
        "INT, SMALLINT, TINYINT, DOUBLE, FLOAT, BOOLEAN, BINARY, DATE, TIMESTAMP, DECIMAL(p,s), "
        "ARRAY<T>, MAP<K,V>, STRUCT<a: T> in 'url TEXT'",
    ),
    Declared(
        "schema_of_python",
        _TOTALS,
        '    totals = Output({"url": str})  # here\n',
        "schema_invalid",
        "Count.totals: the schema must be DDL text, such as 'url STRING', got {'url': <class "
        "'str'>}",
    ),
    Declared(
        "route_by",
        '"url STRING, n BIGINT", route_by="url")',
        '"url STRING, n BIGINT", route_by="link")  # here',
        "route_by_unknown",
        "Count.urls: there is no column 'link'; use url, n",
    ),
    Declared(
        "import_absent",
        "import common_helper\n",
        "import absent_package  # here\n",
        "translator_failed",
        "FILE: cannot be imported: ModuleNotFoundError: No module named 'absent_package'; install "
        "the package for the service: PYTHON -m pip install absent_package",
    ),
    Declared(
        "syntax",
        "import common_helper\n",
        "numbers = (1  # here\n",
        "translator_failed",
        "FILE: cannot be imported: SyntaxError: '(' was never closed",
    ),
    Declared(
        "at_the_top",
        "import common_helper\n",
        "numbers = 1 / 0  # here\n",
        "translator_failed",
        "FILE: cannot be imported: ZeroDivisionError: division by zero",
    ),
    Declared(
        "no_base",
        "class Count(Translate):",
        "class Count:  # here",
        "translator_invalid",
        "Count: is a class but not a translator; derive it from cbp.Translate, TranslateRecords, "
        "TranslateArrow, TranslateRun or TranslateSql",
    ),
)
"""Mistakes that are found before a call."""

_COLUMNS = "url STRING, n BIGINT"


def file_of(name: str, folder: Path) -> Path:
    """Return the author's file for a mistake; each has a module of its own."""
    return folder / f"common_{name}.py"


def line_of(code: str) -> int:
    """Return the number of the line at fault."""
    (line,) = (at for at, text in enumerate(code.splitlines(), 1) if text.endswith("# here"))
    return line


@contextmanager
def compiled(name: str, code: str, folder: Path) -> Iterator[Dataflow]:
    """Write the author's file and compile a dataflow with it; nothing of it stays loaded."""
    file = file_of(name, folder)
    write(folder, {HELPER: _HELPER, file.name: code})
    stage = {"translator": "Count", "inputs": {"urls": "urls"}}
    document = {
        "name": "d",
        "sources": {"urls": {"schema": _COLUMNS}},
        "stages": {"count": stage},
    }
    try:
        yield Registry([], files=TranslatorFiles([file])).compile(document)
    finally:
        load_sources(str(folder), lambda _: None, [])
