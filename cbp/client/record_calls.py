"""Methods of the client: records of flows and states, queries, and snapshots."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

from cbp.client.answers import Correction, CorrectionPreview, Snapshot, answer_of
from cbp.client.calls import Calls, When, instant, key_parameters, stage_and_name, times
from cbp.client.errors import ResourceMissingError
from cbp.client.pages import Pages, QueryResult, Rows
from cbp.client.rest import body_of

Corrections = Sequence[Mapping[str, Any]] | Path
"""Corrections: a list, or a JSON file of `{"corrections": [...]}`.

Each has a `"key"` (its columns), and either `"set"` (columns to set in each of the key's records)
or `"records"` (all new records of the key; `[]` deletes it)."""


class RecordCalls(Calls):
    """Methods that read and correct records.

    By default they read the newest snapshot. For an earlier one, `at` is a time, or `epoch` is the
    number of a run of `stage`; without `stage`, of every stage. A table is named `stage.name`; a
    name without a dot raises `ValueError`.
    """

    def records(
        self,
        name: str,
        flow: str,
        *,
        newest: bool = False,
        at: When = None,
        epoch: int | None = None,
        stage: str | None = None,
    ) -> Rows:
        """Return the records of a flow, oldest first; with `newest`, newest first."""
        query = _moment(at, epoch, stage)
        query += [("newest", "true")] if newest else []
        return self.rows("dataflows", name, "flows", flow, "records", query=query)

    def increment_records(self, name: str, flow: str, index: int) -> Rows:
        """Return the records of one increment, in their order."""
        return self.rows("dataflows", name, "increments", flow, str(index), "records", query=[])

    def state(
        self,
        name: str,
        table: str,
        *,
        at: When = None,
        epoch: int | None = None,
        stage: str | None = None,
    ) -> Rows:
        """Return all records of a state or view, `stage.state`, in the order of key hashes."""
        of, state = stage_and_name(table)
        query = _moment(at, epoch, stage)
        return self.rows("dataflows", name, "state", of, state, "records", query=query)

    def look_up(
        self,
        name: str,
        table: str,
        *,
        at: When = None,
        epoch: int | None = None,
        stage: str | None = None,
        **key: Any,
    ) -> list[dict[str, Any]]:
        """Return the records of one key of a state or view; none if it has no such key.

        `key` maps each key column to a value; `None` is null. A column that is named like an
        argument of this method can be passed through `rest` only.

        Raises:
            ValueError: If `table` has no dot, or no key is given.
            RequestRefusedError: If a key column is missing, unknown, or of another type.
        """
        if not key:
            message = "look_up needs a key, as in look_up('clicks', 'count.counts', url='/')"
            raise ValueError(message)
        of, state = stage_and_name(table)
        query = key_parameters(key) + _moment(at, epoch, stage, prefix="_")
        found = self.rows("dataflows", name, "state", of, state, query=query, cursor="_cursor")
        try:
            return list(found)
        except ResourceMissingError as error:
            if error.details.get("kind") == "state record":
                return []
            raise

    def current(
        self,
        name: str,
        table: str,
        *,
        by: Sequence[str] = (),
        at: When = None,
        epoch: int | None = None,
        stage: str | None = None,
        **where: Any,
    ) -> Rows:
        """Return the current record per key of a state, a view or an output, in the order of keys.

        `by` names the key columns of an output that declares no key. `where` maps columns to
        values; only records with these values are returned.
        """
        query = key_parameters(where) + [("_by", column) for column in by]
        query += _moment(at, epoch, stage, prefix="_")
        return self.rows("dataflows", name, "current", table, query=query, cursor="_cursor")

    def query(
        self,
        name: str,
        sql: str,
        *,
        limit: int | None = None,
        at: When = None,
        epoch: int | None = None,
        stage: str | None = None,
    ) -> QueryResult:
        """Run one SELECT, in DuckDB's SQL, over a consistent snapshot of all tables of a dataflow.

        Raises:
            RequestRefusedError: If it is not a SELECT, takes too long or needs too much memory.
        """
        asked = _query(sql, limit, at, epoch, stage)
        return QueryResult.of(self.rest.post_json("dataflows", name, "query", value=asked))

    def query_csv(
        self,
        name: str,
        sql: str,
        *,
        limit: int | None = None,
        at: When = None,
        epoch: int | None = None,
        stage: str | None = None,
    ) -> tuple[str, bool]:
        """Run one SELECT as `query` does; return CSV, and whether there were more rows."""
        asked = {**_query(sql, limit, at, epoch, stage), "format": "csv"}
        return self.rest.post_for_file("dataflows", name, "query", value=asked)

    def edit(
        self, name: str, table: str, corrections: Corrections, *, reason: str, by: str = ""
    ) -> Correction:
        """Correct records of a state or view, named `stage.state`, in an epoch of their own.

        The correction is published when this returns. The reason is stored permanently.

        Raises:
            RequestRefusedError: If a key or a value is not valid; `details["mistakes"]` lists all
                mistakes.
        """
        path, asked = _corrections(name, table), {"reason": reason, "by": by}
        once = str(uuid4())  # a repeated request corrects only once
        sent = _corrections_sent(corrections)
        return self._posted(Correction, *path, query=asked, idempotency_key=once, **sent)

    def plan_edit(self, name: str, table: str, corrections: Corrections) -> CorrectionPreview:
        """Show the effects of `edit`, with the same arguments and errors."""
        path, sent = _corrections(name, table), _corrections_sent(corrections)
        return self._posted(CorrectionPreview, *path, "preview", **sent)

    def corrections(
        self, name: str, *, since: When = None, until: When = None
    ) -> Pages[Correction]:
        """Return the corrections of a dataflow, newest first."""
        chosen = times(since, until)
        return self.list_of(Correction, "dataflows", name, "corrections", **chosen)

    def snapshot(
        self, name: str, *, at: When = None, epoch: int | None = None, stage: str | None = None
    ) -> Snapshot:
        """Return one consistent version of every table, to read with any Delta reader."""
        answer = self.rest.get_pairs("dataflows", name, "snapshot", query=_moment(at, epoch, stage))
        return answer_of(Snapshot, answer)


def _corrections(name: str, table: str) -> tuple[str, ...]:
    return ("dataflows", name, "state", *stage_and_name(table), "corrections")


def _corrections_sent(corrections: Corrections) -> dict[str, Any]:
    content = (
        body_of(corrections)
        if isinstance(corrections, Path)
        else json.dumps({"corrections": list(corrections)}).encode()
    )
    return {"content": content, "content_type": "application/json"}


def _query(
    sql: str, limit: int | None, at: When, epoch: int | None, stage: str | None
) -> dict[str, Any]:
    asked = {"sql": sql, "limit": limit, "at": instant(at), "epoch": epoch, "stage": stage}
    return {key: value for key, value in asked.items() if value is not None}


def _moment(
    at: When, epoch: int | None, stage: str | None, *, prefix: str = ""
) -> list[tuple[str, str]]:
    given = {"at": instant(at), "epoch": epoch, "stage": stage}
    return [(f"{prefix}{name}", str(value)) for name, value in given.items() if value is not None]
