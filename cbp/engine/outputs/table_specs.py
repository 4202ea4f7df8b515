"""Table specs: the tables that a stage declares, each with columns, placement and settings.

This is the only definition: tables are created from it, and a table of an earlier version of the
stage is compared with it.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from cbp.engine.delta.change_feed_settings import feed_settings
from cbp.engine.delta.foreign_writer_fence import placement
from cbp.engine.storage.table_names import flow_table, set_aside_table, state_table
from cbp.model.dataflow.dataflow import StageNode
from cbp.model.dataflow.set_aside import SET_ASIDE
from cbp.model.flow.schema import Schema

HASH, BUCKET, EPOCH = ("_hash", "BIGINT"), ("_bucket", "INT"), ("_epoch", "BIGINT")


@dataclass(frozen=True, slots=True)
class DeclaredTable:
    """One table of a stage; `name` is its folder relative to the dataflow's.

    Attributes:
        id: The same dataflow, stage and flow always give the same id.
        extra: The engine's columns; they follow the author's.
        buckets: Number of buckets of a state; 0 for any other table.
    """

    name: str
    id: str
    schema: Schema
    extra: tuple[tuple[str, str], ...]
    partition_by: tuple[str, ...]
    configuration: Mapping[str, str]
    buckets: int = 0

    @property
    def is_state(self) -> bool:
        """Whether records are placed by hash and bucket, and looked up by key."""
        return self.buckets > 0


def declared_tables(dataflow: str, node: StageNode) -> Iterator[DeclaredTable]:
    """Yield the tables of a stage, state first."""
    for state in node.translator.states:
        key = node.translator.key_of(state).names
        configuration = placement(node.buckets, key)
        if state.changes:
            names = state.schema.names if state.bag else (*key, *state.second_key)
            view_key = state.schema.select(names)
            configuration |= feed_settings(state.changes, view_key)
        yield DeclaredTable(
            state_table(node.name, state.name),
            _table_id(dataflow, node.name, state.name),
            state.schema,
            (HASH, BUCKET),
            ("_bucket",),
            configuration,
            node.buckets,
        )
    for output in node.translator.outputs:
        yield DeclaredTable(
            flow_table(node.name, output.name),
            _table_id(dataflow, node.name, output.name),
            output.schema,
            (EPOCH,),
            (),
            {"cbp.key": ",".join(output.key)},
        )
    if node.sets_aside:
        yield declared_set_aside(dataflow, node.name)


def declared_set_aside(dataflow: str, stage: str) -> DeclaredTable:
    """Return the table of set-aside records of a stage; it stays if the option is removed."""
    name = set_aside_table(stage)
    # No output has this id, since no output's name has a slash.
    return DeclaredTable(name, _table_id(dataflow, stage, name), SET_ASIDE, (), (), {})


def _table_id(dataflow: str, stage: str, name: str) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"cbp:{dataflow}/{stage}.{name}"))
