"""What an author writes: a class with inputs, outputs, state and `translate`.

    class UrlCount(Translate):
        '''Count how often each URL was seen.'''
        urls   = Input("url STRING", route_by="url")
        counts = State("url STRING, n BIGINT", grouping="inner")
        totals = Output("url STRING, n BIGINT", key="url")

        def translate(self, key, group, out):
            n = sum(1 for _ in group.urls) + sum(row.n for row in group.counts)
            out.counts(url=key.url, n=n)
            out.totals(url=key.url, n=n)

A class whose shape depends on parameters sets the same attributes on `self` in
`__init__`. `spec()` compiles an instance to the plain `TranslatorSpec` that every
engine executes; it finds every mistake that can be found without data.

Translators must be deterministic and free of side effects: a run may be tried
again, and the results of both tries must be the same.

Source: CBP (SoCC'10), section 2.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

from cbp.model.stage import Form, TranslatorSpec
from cbp.sdk.compile import Compiler

__all__ = ["Declared", "Translate", "TranslateRecords"]


class Declared:
    """What all kinds of translators share: the collection of declarations.

    Attributes:
        form: How `translate` is called.
        taken: Names that an input or state cannot have in this form.
        record_wise: Whether every record is its own group, so that nothing is shuffled.
    """

    # Not declared, so that a class may set a rule or define a method: `runnable`.
    key: str | None = None
    form: ClassVar[Form] = "groupwise"
    taken: ClassVar[tuple[str, ...]] = ()
    record_wise: ClassVar[bool] = False

    def spec(self) -> TranslatorSpec:
        """Compile this instance to plain values.

        Raises:
            DefinitionError: Naming class, attribute, place, and what to do instead.
        """
        compiler = Compiler(self, form=self.form, taken=self.taken, record_wise=self.record_wise)
        return compiler.spec()


class Translate(Declared):
    """A groupwise translator: called once for each group of an epoch.

    A record of an input without `route_by` is a group of its own. With `key=None` it comes alone:
    all other inputs, and all states, are empty. State that it emits is for the keys that it names.

    When it runs, and on what, says `runnable`: a rule such as `runnable = Align()`, or a
    method `runnable(self, connectors, memo) -> Decision`; by default `RunAll()`, or with
    a `Loopback` `RunAny()`.

    Attributes:
        key: DDL of the group's key, such as `"site STRING"`; by default the columns
            that the first input routes by.
    """

    @abstractmethod
    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Turn the records of one group into output and state records.

        Args:
            key: The group's key, with a field per key column; `None` for a single record.
            group: One iterator of records per input and state, by name. They may be
                read in any order, once, or not at all; a group may exceed memory.
            out: One function per output, loopback and state, by name; takes the columns
                by keyword, or a record by `out.name(*record)`. With multicast also
                `associate(key, address)`; see `Loopback`.
        """


class TranslateRecords(Declared):
    """A record-wise translator of one input: every record is its own group.

    Nothing is shuffled. For several inputs derive from `Translate`, and leave out `route_by`.
    """

    record_wise: ClassVar[bool] = True

    @abstractmethod
    def translate(self, record: Any, out: Any) -> None:
        """Turn one record into output records.

        Args:
            record: With a field per column of the input.
            out: One function per output, by name.
        """
