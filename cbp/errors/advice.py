"""Advice on an exception that Python raised in an author's code.

Python names the wrong value, but not its cause: for example, that a `None` came from a column that
may be null, or that a record has its columns as attributes. Each entry below is for a kind of
exception.

Guaranteed: each entry is reached by a mistake that authors make (tests/cbp/sdk/test_commonest.py).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from decimal import Inexact
from pathlib import Path

Columns = Mapping[str, Sequence[str]]
"""What an author can emit: the parameters of `out.<name>(...)`, by name."""

_EMITTED = re.compile(r"^out\.([^.( ]+)(?:\.remote)?\(")
_MISSING = re.compile(r"missing \d+ required positional arguments?: (.*)$")

_BY_TEXT: Mapping[tuple[type[Exception], str], str] = {
    (TypeError, r"(unsupported operand|not supported between).*NoneType"): (
        "a column without NOT NULL can be None: skip records in which it is None, as in "
        "`if row.n is not None`, or declare the column NOT NULL"
    ),
    (
        TypeError,
        r"unsupported operand.*('decimal\.Decimal' and 'float'|'float' and 'decimal\.Decimal')",
    ): ("a DECIMAL is not a float: write Decimal('1.5') instead of 1.5, or float(value)"),
    (Inexact, r""): (
        "the result has more than the 38 digits that a DECIMAL can hold, and rounding must be "
        "explicit: write `with decimal.localcontext(traps=[]): value = round(value, 2)`"
    ),
    (TypeError, r"offset-naive and offset-aware"): (
        "a TIMESTAMP is a time in UTC, but the other time has no time zone: add one, as in "
        "value.replace(tzinfo=UTC). For the current time use group.run.time"
    ),
    (TypeError, r"^unhashable type: '(list|dict|set|Row)'"): (
        "a list, a dict or a set cannot be the key of a dict or an element of a set: write "
        "tuple(value)"
    ),
    (TypeError, r"^tuple indices must be integers or slices, not str"): (
        "the columns of a record or a key are attributes: write row.url, not row['url']"
    ),
    (
        TypeError,
        r"^(object of type 'flow' has no len|'flow' object is not (subscriptable|reversible))",
    ): (
        "a flow of a group is an iterator: put its records into a list, as in rows = "
        "list(group.urls)"
    ),
    (AttributeError, r"^'flow' object has no attribute"): (
        "a flow of a group is an iterator of records, and only a record has columns: write `for "
        "row in group.urls`, or `rows = list(group.urls)`"
    ),
    (AttributeError, r"^'(function|method)' object has no attribute"): (
        "emit a record by calling the function, as in out.totals(url=key.url)"
    ),
    (AttributeError, r"^'NoneType' object has no attribute"): (
        "a column without NOT NULL can be None: skip records in which it is None, as in "
        "`if row.n is not None`, or declare the column NOT NULL"
    ),
    (
        TypeError,
        r"^'group' object is not (iterable|subscriptable)|^object of type 'group' has no len",
    ): ("iterate over a flow of the group, as in `for row in group.urls`"),
    (TypeError, r"^'out' object is not (callable|subscriptable)"): (
        "to emit a record, call an output or a state of `out`, as in out.totals(url=key.url)"
    ),
    (TypeError, r"^(Input|Output|State|View|Loopback|Lookup)\.__init__\(\) missing .*'schema'"): (
        "declare the columns with their types, as in Output('url STRING, n BIGINT')"
    ),
    (AttributeError, r"^can't set attribute"): (
        "a record cannot be changed: emit a new one, as in out.totals(**{**row._asdict(), 'n': 1})"
    ),
    (RuntimeError, r"changed size during iteration"): (
        "iterate over a copy, as in `for one in list(values)`"
    ),
    (RecursionError, r""): ("a function recurses endlessly, or too deeply: write a loop"),
}
"""What to do, by the kind of an exception and a pattern of its text."""


def advice(exc: BaseException, text: str, columns: Columns) -> str:
    """Return advice on an exception; empty if its text suffices, or no advice is known."""
    if isinstance(exc, ModuleNotFoundError):
        package = (exc.name or "PACKAGE").partition(".")[0]
        return (
            "install the package where the stage runs, in the environment of the service and of "
            f"Spark's workers: python -m pip install {package}. Import it at the top of the file, "
            "so that `cbp validate` notices a missing package"
        )
    if isinstance(exc, FileNotFoundError):
        return _absolute(exc.filename)
    if isinstance(exc, MemoryError):
        return (
            "the process that runs the stage is out of memory: loop over group.<flow> without "
            "list(...), or keep sums instead of records"
        )
    if isinstance(exc, TypeError) and (emitted := _EMITTED.match(text)):
        return _call(emitted[1], text, columns)
    for (kind, pattern), what in _BY_TEXT.items():
        if isinstance(exc, kind) and re.search(pattern, text):
            return what
    return ""


def _absolute(name: object) -> str:
    if not isinstance(name, str) or Path(name).is_absolute():
        return ""
    return (
        "the path is relative to the working folder of the process that runs the stage, which "
        "differs between machines. Pass the translator an absolute path as a parameter. To read a "
        "file beside the translator's module, open Path(__file__).with_name(...) in its __init__"
    )


def _call(name: str, text: str, columns: Columns) -> str:
    names = columns.get(name)
    if not names or "argument" not in text:
        return ""
    given = ", ".join(f"{column}=..." for column in names)
    missing = _MISSING.search(text)
    lacking = re.findall(r"'([^']+)'", missing[1]) if missing else []
    if lacking and lacking == [*names[1:]]:
        return (
            f"write out.{name}({given}); to emit a dict, write out.{name}(**values); to emit a "
            f"record or a tuple, out.{name}(*values)"
        )
    return f"write out.{name}({given})"
