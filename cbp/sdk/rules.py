"""Parse the Runnable rules of a document, such as `runnable: {count_window: {size: 3}}`.

A rule without arguments is a plain name: `runnable: run_any`. `cbp.model.dataflow.runnable.RULES`
defines the names; the arguments are those of its classes. A rule inside a rule (`rule` of
`static_table`) is written the same way.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Mapping
from typing import Any, NoReturn

from cbp.errors import DefinitionError, Mistake
from cbp.model.dataflow.runnable import RULES, Rule
from cbp.model.dataflow.stage import RunnableSpec

_NESTED = "rule"


def read_rule(value: Any, where: str) -> RunnableSpec | None:
    """Return the rule in a document; `None` if the document leaves it to the translator.

    `value` is `None`, the name of a rule, or a mapping from one name to its arguments.

    Raises:
        DefinitionError: With code `runnable_unknown` and the known names, or with
            `runnable_invalid` and the arguments that the rule takes.
    """
    return None if value is None else RunnableSpec(_rule(value, where), where)


def _rule(value: Any, where: str) -> Rule:
    if isinstance(value, str):
        value = {value: {}}
    if not isinstance(value, Mapping) or len(value) != 1:
        message = (
            f"expected one rule, such as run_any or {{count_window: {{size: 3}}}}, got {value!r}"
        )
        _fail("runnable_invalid", where, message)
    ((name, arguments),) = value.items()
    if name not in RULES:
        near = difflib.get_close_matches(str(name), RULES, n=1)
        hint = f"did you mean {near[0]}?" if near else f"use one of {', '.join(RULES)}"
        _fail("runnable_unknown", where, f"there is no rule {name!r}; {hint}")
    takes = ", ".join(map(str, inspect.signature(RULES[name]).parameters.values()))
    if not isinstance(arguments, Mapping):
        message = f"expected a mapping of the arguments of {name} ({takes}), got {arguments!r}"
        _fail("runnable_invalid", where, message)
    given = {
        key: _rule(argument, f"{where}.{name}.{key}") if key == _NESTED else argument
        for key, argument in arguments.items()
    }
    try:
        rule: Rule = RULES[name](**given)
    except (TypeError, ValueError) as error:
        _fail("runnable_invalid", where, f"{name}: {error}; it takes ({takes})")
    return rule


def _fail(rule: str, where: str, message: str) -> NoReturn:
    raise DefinitionError(Mistake(rule, where, message))
