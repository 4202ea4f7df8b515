"""Ages for groups that had records before their state began to expire.

A version can add `expire=` to a state that is kept. Its groups have no hidden timers then, and
would never expire unless they are called. So the first run that looks at the timers after a change
of version gives each of them one, as if it were called now. That reads all keys of the state, once.

Groups are distinguished by their hash alone here. If a group without a timer has the hash of a
group that is called or has one, it gets its own timer only when it is called next.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cbp.engine.columnar.groups import union
from cbp.engine.state.bucket_state import BucketState
from cbp.engine.state.run_files import state_file_schema
from cbp.model.dataflow.expiry import expires_at
from cbp.model.dataflow.run_context import RunContext
from cbp.model.dataflow.stage import TIMER_COLUMN, StateSpec, TranslatorSpec

__all__ = ["AgingWork"]

Int64s = npt.NDArray[np.int64]
WriteState = Callable[[str, pa.Table], None]


class _Work(Protocol):
    groups: int

    def run(self) -> None: ...


@dataclass
class AgingWork:
    """The work on a batch of buckets, with ages for the groups that have none.

    Attributes:
        start: Makes the work from what takes new records of states.
        write_state: Takes new records of a state, which ascend by hash.
        busy: Hashes of groups that the work may call.
    """

    spec: TranslatorSpec
    states: Mapping[str, BucketState]
    context: RunContext
    start: Callable[[WriteState], _Work]
    write_state: WriteState
    busy: Sequence[Int64s]
    groups: int = field(init=False, default=0)

    def run(self) -> None:
        """Do the work, and write the timers of the others among its own."""
        # Found before the work, which deletes records; files of a state ascend by hash.
        new = {one.name: [self._missing(one)] for one in self.spec.expiries}
        work = self.start(partial(self._take, new))
        work.run()
        self.groups = work.groups
        for name, tables in new.items():
            table = pa.concat_tables(tables).sort_by("_hash")
            if table.num_rows:
                self.write_state(name, table)

    def _take(self, new: Mapping[str, list[pa.Table]], name: str, rows: pa.Table) -> None:
        if name in new:
            new[name].append(rows)
        else:
            self.write_state(name, rows)

    def _missing(self, timers: StateSpec) -> pa.Table:
        """Return timers for the groups of a state that have none and are not called."""
        state = self.spec.state(timers.expires)
        records = self.states[state.name].find(None)
        hashes, first = np.unique(records.hashes, return_index=True)
        with_timer = self.states[timers.name].find(None).hashes
        missing = first[~np.isin(hashes, union([*self.busy, np.unique(with_timer)]))]
        schema = state_file_schema(timers)
        if not len(missing):
            return schema.empty_table()
        some = records.at(missing)
        keys = self.states[state.name].take(some, list(self.spec.key_of(state).names))
        at = pa.scalar(
            expires_at(self.context.time, state.expire_ms), schema.field(TIMER_COLUMN).type
        )
        columns = [*keys.columns, pa.repeat(at, len(missing)), pa.array(some.hashes)]
        return pa.table(columns, names=schema.names).cast(schema)
