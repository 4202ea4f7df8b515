"""The keys of records that groups emit to outputs of which the last record counts, one by one.

In the other engines: `cbp.engine.kernel.arrow.output_keys`.
"""

from __future__ import annotations

from collections.abc import Collection

from cbp.engine.columnar.values import Row, unify
from cbp.model.dataflow.call_rules import refuse_output_foreign, refuse_output_twice
from cbp.model.dataflow.stage import TranslatorSpec


class OutputKeys:
    """The keys of the records that one call has emitted to each such output."""

    def __init__(self, spec: TranslatorSpec) -> None:
        self._places: dict[str, tuple[list[int], list[int]]] = {}
        for output in spec.outputs if spec.key is not None else ():
            if output.single and spec.key is not None:
                group = [output.schema.index(name) for name in spec.key.names]
                key = [output.schema.index(name) for name in output.key]
                self._places[output.name] = group, key
        self._seen: dict[str, set[Row]] = {name: set() for name in self._places}

    def take(self, output: str, row: Row, called: Collection[Row]) -> None:
        """Note a record that was emitted.

        Raises:
            AuthorMisuse: Its key is of no called group, or was emitted before.
        """
        if output not in self._places:
            return
        group, key = (unify([row[at] for at in places]) for places in self._places[output])
        if group not in called:
            refuse_output_foreign(output, group, *called if len(called) == 1 else ())
        if key in self._seen[output]:
            refuse_output_twice(output, key)
        self._seen[output].add(key)
