"""An empty database in memory, into which the tables of one query are put as views on their files.

Guaranteed: it reads only files below the folders of these tables, writes nothing, and reaches no
network; settings can no longer be changed. A view reads only the columns that a query names.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from cbp.engine.read.version_files import LiveFile, VersionFiles
from controller.query.current_records import ORDER
from controller.query.query_limits import QueryLimits
from controller.query.sql_types import quoted, sql_type

_HIDDEN = frozenset({"_hash", "_bucket"})


def open_database(folders: Sequence[str], limits: QueryLimits) -> duckdb.DuckDBPyConnection:
    """Return an empty database that can read only below these folders."""
    database = duckdb.connect(
        ":memory:", config={"autoload_known_extensions": "false", "threads": str(limits.threads)}
    )
    for setting, value in (
        ("autoinstall_known_extensions", "false"),
        ("allow_community_extensions", "false"),
        ("python_enable_replacements", "false"),
        ("python_scan_all_frames", "false"),
        ("enable_progress_bar", "false"),
        ("temp_directory", "''"),
        ("home_directory", "''"),
        ("max_temp_directory_size", "'0KiB'"),
        ("memory_limit", f"'{limits.memory_bytes}B'"),
        ("TimeZone", "'UTC'"),
        ("allowed_directories", _list(folders)),
        ("enable_external_access", "false"),
    ):
        database.execute(f"SET {setting}={value}")
    return database


def parse(database: duckdb.DuckDBPyConnection, sql: str) -> Mapping[str, Any]:
    """Return the syntax tree of a query from DuckDB's parser; does not run the query."""
    call = "SELECT json_serialize_sql(?, skip_null := true, skip_empty := true)"
    row = database.execute(call, [sql]).fetchone()
    assert row is not None, "json_serialize_sql returned no row"
    parsed = json.loads(row[0])
    assert isinstance(parsed, Mapping)
    return parsed


def add_table(
    database: duckdb.DuckDBPyConnection, name: str, table: VersionFiles, *, is_flow: bool
) -> None:
    """Make a table of one version visible, by its name and by its full name in quotes.

    Args:
        database: The database; not locked yet.
        name: Its name in SQL, as `stage.table`.
        is_flow: Whether to add the column `ORDER`.
    """
    columns = [
        (column, sql_type(type_)) for column, type_ in table.columns if column not in _HIDDEN
    ]
    numbered = list(enumerate(table.files))
    whole = [(at, file) for at, file in numbered if not len(file.dead)]
    parts = [(at, file) for at, file in numbered if len(file.dead)]
    selects = [
        _select(database, columns, some, f"{name}#{number}", is_flow=is_flow)
        for number, some in enumerate((whole, parts))
        if some
    ]
    if not selects:
        nulls = [f"CAST(NULL AS {type_}) AS {quoted(column)}" for column, type_ in columns]
        nulls += [f"CAST(NULL AS BIGINT) AS {ORDER}"] if is_flow else []
        selects = [f"SELECT {', '.join(nulls)} WHERE false"]
    stage, _, own = name.partition(".")
    body = " UNION ALL ".join(selects)
    database.execute(f"CREATE SCHEMA IF NOT EXISTS memory.{quoted(stage)}")
    for view in (f"memory.{quoted(stage)}.{quoted(own)}", f"memory.main.{quoted(name)}"):
        database.execute(f"CREATE VIEW {view} AS {body}")


def lock(database: duckdb.DuckDBPyConnection) -> None:
    """Lock the settings."""
    database.execute("SET lock_configuration=true")


def _select(
    database: duckdb.DuckDBPyConnection,
    columns: Sequence[tuple[str, str]],
    files: Sequence[tuple[int, LiveFile]],
    name: str,
    *,
    is_flow: bool,
) -> str:
    """Return a SELECT over files, without their dead rows."""
    has_dead = any(len(file.dead) for _, file in files)
    options = ["hive_partitioning=false", "union_by_name=true"]
    options += ["filename='_file'", "file_row_number=true"] if has_dead or is_flow else []
    scan = f"read_parquet({_list([file.path for _, file in files])}, {', '.join(options)})"
    there = {row[0] for row in database.execute(f"DESCRIBE SELECT * FROM {scan}").fetchall()}
    shown = [
        f"CAST({f'f.{quoted(column)}' if column in there else 'NULL'} AS {type_}) "
        f"AS {quoted(column)}"
        for column, type_ in columns
    ]
    source = f"{scan} AS f"
    if is_flow:
        places = pa.table({"file": [file.path for _, file in files], "at": [at for at, _ in files]})
        database.register(f"{name}/places", places)
        source += f" JOIN {quoted(f'{name}/places')} AS p ON f._file = p.file"
        shown.append(f"(p.at << 40) + f.file_row_number AS {ORDER}")
    if has_dead:
        database.register(f"{name}/dead", _dead(files))
        source += (
            f" ANTI JOIN {quoted(f'{name}/dead')} AS d "
            "ON f._file = d.file AND f.file_row_number = d.at"
        )
    return f"SELECT {', '.join(shown)} FROM {source}"


def _dead(files: Sequence[tuple[int, LiveFile]]) -> pa.Table:
    counts = [len(file.dead) for _, file in files]
    numbers = pa.array(np.repeat(np.arange(len(files), dtype=np.int32), counts))
    paths = pa.DictionaryArray.from_arrays(numbers, pa.array([file.path for _, file in files]))
    return pa.table({"file": paths, "at": np.concatenate([file.dead for _, file in files])})


def _list(texts: Sequence[str]) -> str:
    return "[" + ", ".join("'" + text.replace("'", "''") + "'" for text in texts) + "]"
