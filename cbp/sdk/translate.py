"""Base classes of translators: a class with inputs, outputs, state and `translate`.

    class UrlCount(Translate):
        '''Count how often each URL was seen.'''
        urls   = Input("url STRING", route_by="url")
        counts = State("url STRING, n BIGINT", grouping="inner")
        totals = Output("url STRING, n BIGINT", key="url")

        def translate(self, key, group, out):
            n = sum(1 for _ in group.urls) + sum(row.n for row in group.counts)
            out.counts(url=key.url, n=n)
            out.totals(url=key.url, n=n)

A class whose declarations depend on parameters sets the same attributes on `self` in `__init__`.
`spec()` compiles an instance to the plain `TranslatorSpec` that every engine executes.

A column is an attribute of its record: `row.url`. If the column's name is a Python keyword, the
attribute has a trailing underscore: `row.from_`, `out.totals(from_=1)`
(`cbp.model.flow.attributes`).

Translators must be deterministic and free of side effects: a run can be tried again, and both tries
must give the same result. Every task has its own instance, as `__init__` left it. Changing that
instance later is an error (`author_state_changed`).

No engine detects the following mistakes:

- Values kept in a module or a closure between calls. `cbp.testing.check_split` finds them if a
  result depends on them. It finds randomness and clocks in the same way.
- Results that depend on `hash()`, `id()` or the order of a set of texts, which differ between
  processes. Sort a set before iterating over it.
- Emitting inside `map(...)` or a generator that is never consumed: nothing is emitted.
- Comparing a key with a value: `key == "a"` is always false, since a key is a record. Write
  `key.url == "a"`.
- Two values of one type in the wrong order. Pass columns by keyword.

Source: CBP (SoCC'10), section 2.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection
from typing import Any, ClassVar

from cbp.errors import DefinitionError, Mistake, text_of
from cbp.model.dataflow.stage import Form, TranslatorSpec
from cbp.sdk.compile import Compiler
from cbp.sdk.declare import place_of


class Declared:
    """Base of all translators: compiles their declarations.

    Attributes:
        form: How `translate` is called.
        reserved: Names that an input or state cannot have in this form.
        record_wise: Whether every record is its own group, so that nothing is shuffled.
        made_by: The factory function that made the instance, if a document names one. Its code
            is part of the fingerprint.
    """

    # `runnable` is not annotated here, since a class can set it to a rule or define it as a method.
    key: str | None = None
    form: ClassVar[Form] = "groupwise"
    reserved: ClassVar[tuple[str, ...]] = ()
    record_wise: ClassVar[bool] = False
    made_by: Callable[..., object] | None = None

    def spec(self) -> TranslatorSpec:
        """Compile this instance to plain values.

        Raises:
            DefinitionError: A declaration is wrong.
        """
        return Compiler(self).spec()


def spec_of(translator: object, without: Collection[str] = ()) -> TranslatorSpec:
    """Compile a translator; raise `DefinitionError` if the given object is not a translator.

    `without` are codes of rules to ignore.
    """
    if isinstance(translator, Declared):
        return Compiler(translator, without).spec()
    if isinstance(translator, type) and issubclass(translator, Declared):
        name = translator.__name__
        message = f"{name} is a class; give an instance: {name}()"
        raise DefinitionError(Mistake("translator_invalid", name, message, place_of(translator)))
    shown = text_of(translator, repr)[:100]
    message = f"{shown} is not a translator; give an instance of a subclass of Translate"
    raise DefinitionError(Mistake("translator_invalid", "translator", message))


class Translate(Declared):
    """A groupwise translator: called once for each group of an epoch.

    A record of an input without `route_by` is a group of its own: `translate` is called with
    `key=None` and this one record, and all other inputs and all states are empty. State that it
    emits belongs to the keys in the emitted records.

    `runnable` decides when the stage runs, and which increments it reads. It is a rule, such as
    `runnable = Align()`, or a method `runnable(self, connectors, memo) -> Decision`. The default
    is `RunAny()` if there is a `Loopback`, and otherwise `RunAll()`.

    Attributes:
        key: DDL of the group's key, such as `"site STRING"`. Default: the columns by which the
            first input routes.
    """

    @abstractmethod
    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Turn the records of one group into output and state records.

        Args:
            key: The group's key, with a field per key column; `None` for a single record.
            group: One iterator of records per input and state, by name. Iterators can be read in
                any order, once or not at all, since a group can exceed memory. Reading an
                iterator again after its end, or in two loops at once, fails
                (`input_read_twice`); keep `list(group.<name>)` instead. An iterator has no
                truth value: `if group.<name>` fails. `group.run` is the run: its `epoch`, its
                recorded `time` (in UTC) and `frame("<input>")`, the label of the frame that it
                reads (`cbp.model.dataflow.run_context`). Read it in a method of the class.
            out: One function per output, loopback and state, by name. It takes the columns by
                keyword, or a record by `out.name(*record)`. `out.<name>.many(rows)` emits each
                tuple of an iterable, such as `zip(neighbours, repeat(label))`. Plain tuples of
                values that are not nested take less time than as many calls.
                `out.<state>.remote(...)` writes state of another key. With multicast there is
                also `associate(key, address)`; see `Loopback`. Return nothing from `translate`.
        """


class TranslateRecords(Declared):
    """A record-wise translator of one input: every record is its own group.

    Nothing is shuffled. For several inputs, derive from `Translate` and leave out `route_by`.
    """

    record_wise: ClassVar[bool] = True

    @abstractmethod
    def translate(self, record: Any, out: Any) -> None:
        """Turn one record into output records; `out` has one function per output, by name."""
