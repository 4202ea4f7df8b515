"""Every durable effect of the product passes a named failpoint, or is listed here with its reason.

A call that makes, renames, removes or syncs a file counts as durable, and so does one that opens or
ends a transaction of the database: in `controller/store`, the only package that may know SQLAlchemy
(an import contract), and elsewhere by the name that the store gives it. Who makes it fires a
failpoint itself, or is in `COVERED` (its callers fire one) or in `NOT_DURABLE` (nothing that a
restart needs). Calls through the port of `cbp/engine/storage/files.py`, and through
`Database.write`, are covered by these.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
# Clients of the service, with no promise of their own.
LEFT_OUT = {"bench", "cli", "client", "demo", "ui"}

COVERED = {
    "cbp/engine/storage/parquet_writer.py:_seal": "called by close, which passes data_file",
    "cbp/engine/storage/checked_parquet.py:seal": "called by close, which passes data_file",
    "cbp/engine/storage/files.py:sync_path": "the port and sync_files call it between points",
    "cbp/engine/storage/files.py:_temporary": "before a put, whose points are around the name",
    "cbp/engine/storage/files.py:_make_dirs": "an empty folder is nothing",
    "cbp/engine/storage/parquet_writer.py:_flush": "a file that is open; close passes data_file",
    "controller/ingest/reader/increment_parts.py:__init__": "a temporary; publish names it",
    "controller/ingest/reader/increment_parts.py:abandon": "a temporary, which a start removes",
    "controller/sinks/delta_table.py:_sync": "_make and _commit call it and pass sink_table",
    "controller/sinks/increment_files.py:_write": "a draft; publish names it and passes sink_file",
    "controller/store/database/connections.py:write_schema": "write calls it and passes sql_commit",
    "controller/store/database/migrate.py:migrate": "one transaction, before the store is open: "
    "a death in it leaves the schema of before (tests/conformance/test_migrations.py)",
    "controller/store/base.py:open_scratch": "a store that is thrown away, in a temporary folder",
    "controller/ingest/uploads.py:_received": "an upload that is not claimed; claim follows",
}
NOT_DURABLE = {
    "controller/store/database/damage.py:put_damaged_aside": "a damaged database, found so again",
    "controller/ingest/reader/increment_parts.py:discard": "temporaries; a named part: the port",
    "cbp/engine/state/copies.py:write_copy": "a cache",
    "cbp/engine/state/copies.py:note_dropped": "a note that nothing needs",
    "cbp/engine/state/cache_eviction.py:remove_boots": "a cache",
    "cbp/engine/state/cache_eviction.py:evict": "a cache",
    "cbp/engine/state/cache_eviction.py:remove_older": "scratch of killed tasks",
    "cbp/engine/state/index_cache.py:_drop": "a cache",
    "cbp/engine/state/index_cache.py:_put": "a cache",
    "cbp/engine/storage/scratch_folders.py:_remove_dead": "scratch of killed processes",
    "cbp/engine/storage/scratch_folders.py:scratch_folder": "scratch of one roll-back",
    "cbp/engine/spark/session.py:_scratch_root": "scratch of processes",
    "cbp/engine/spark/sql/task_input.py:forget": "scratch of one task",
    "cbp/engine/spark/sql/scratch_files.py:__init__": "scratch of one task",
    "cbp/engine/spark/sql/scratch_files.py:close": "scratch of one task",
    "cbp/engine/spark/sql/scratch_files.py:finish": "scratch of one task",
    "cbp/engine/workers/end_with_parent.py:end_first": "a figure of this process, for the kernel",
    "cbp/engine/workers/process_stack.py:__init__": "a file without a name, of one process",
    "cbp/engine/workers/worker_process.py:__init__": "a file without a name, of one process",
    "controller/app/service.py:__init__": "empty folders",
    "controller/ingest/folder/claims.py:remove_unclaimed_uploads": "what was never acknowledged",
    "controller/ingest/uploads.py:_claim": "a second copy; the first has the claim",
    "controller/ingest/uploads.py:_give_up": "what was never acknowledged",
    "controller/ingest/uploads.py:held": "what is only looked at",
    "controller/ingest/folder/folder_check.py:_try_move": "a probe",
    "controller/loop/records/dataflow_folder.py:remove_purged": "of a purge; done at each start",
    "controller/loop/leadership/terms.py:_remove": "what no name leads to; done again at each term",
    "controller/run_logs.py:_opened": "a log for people; no decision reads it",
    "controller/run_logs.py:forget": "logs of a purge; removed later by their age",
    "controller/run_logs.py:prune": "old logs; done again every minute",
    "controller/secret_values.py:create_token_file": "a secret of its own, made anew if lost",
    "controller/store/database/connections.py:_prepare": "an empty folder",
    "controller/store/database/connections.py:read": "a transaction that writes nothing",
}

_OS = {
    "fsync", "fdatasync", "link", "makedirs", "mkdir", "remove", "rename", "replace", "rmdir",
    "symlink", "truncate", "unlink",
}  # fmt: skip
_PATH = {"mkdir", "rename", "rmdir", "symlink_to", "touch", "unlink", "write_bytes", "write_text"}
_SQL = {"begin", "begin_nested", "commit"}
"""Methods of SQLAlchemy, in the package that may know it."""
_SQL_ANYWHERE = {"write_schema"}
_STORE = "controller/store/"
_OPENING = {"open", "OSFile", "NamedTemporaryFile", "mkstemp", "fdopen"}


Function = ast.FunctionDef | ast.AsyncFunctionDef


def durable_calls(function: Function, *, sql: bool = False) -> Iterator[str]:
    """Yield the durable calls of a function; `sql`: whether it may know SQLAlchemy."""
    for call in (node for node in ast.walk(function) if isinstance(node, ast.Call)):
        if isinstance(call.func, ast.Name):
            if call.func.id == "open" and _writes(call):
                yield "open"
            continue
        if not isinstance(call.func, ast.Attribute):
            continue
        name, owner = call.func.attr, ast.unparse(call.func.value)
        if owner in ("os", "shutil"):
            actual = owner == "shutil" or name in _OS
        else:
            actual = name in _PATH or (name in _OPENING and _writes(call))
            actual |= name in _SQL_ANYWHERE or (sql and name in _SQL)
        if actual:
            yield f"{owner}.{name}"


def _writes(call: ast.Call) -> bool:
    """Tell whether a file is opened for writing."""
    if ast.unparse(call.func).endswith(("NamedTemporaryFile", "mkstemp")):
        return True
    values = [*call.args[1:], *(k.value for k in call.keywords if k.arg == "mode")]
    modes = [v.value for v in values if isinstance(v, ast.Constant) and isinstance(v.value, str)]
    return any(set(mode) & set("wxa+") and len(mode) <= 3 for mode in modes)


def fires(function: Function) -> bool:
    """Tell whether a function passes a failpoint."""
    calls = [node for node in ast.walk(function) if isinstance(node, ast.Call)]
    names = {ast.unparse(call.func).rpartition(".")[2].lstrip("_") for call in calls}
    return bool(names & {"fault", "faults"})


def functions() -> Iterator[tuple[str, Function]]:
    """Yield every function of the product under `file:name`."""
    for package in ("cbp", "controller"):
        for file in sorted((REPOSITORY / package).rglob("*.py")):
            parts = file.relative_to(REPOSITORY).parts
            if not LEFT_OUT & set(parts):
                for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                    if isinstance(node, Function):
                        yield f"{'/'.join(parts)}:{node.name}", node


@cache
def durable_functions() -> tuple[tuple[str, tuple[str, ...], bool], ...]:
    """Return every function of the product with durable calls: its name, them, and if it fires."""
    return tuple(
        (name, tuple(sorted(calls)), fires(function))
        for name, function in functions()
        if (calls := set(durable_calls(function, sql=name.startswith(_STORE))))
    )


def test_every_durable_call_has_a_failpoint() -> None:
    """Who adds an effect on disk gives it a name where a test can crash, or says why not."""
    listed = COVERED.keys() | NOT_DURABLE.keys()
    bare = {
        name: calls
        for name, calls, fired in durable_functions()
        if name not in listed and not fired
    }
    assert bare == {}, "fire a failpoint around it, or list it with its reason"


def test_the_exceptions_are_all_needed() -> None:
    """A name in the lists that has no durable call any more is taken out."""
    needed = {name for name, _, _ in durable_functions()}
    assert (COVERED.keys() | NOT_DURABLE.keys()) - needed == set()


def test_the_scan_sees_what_it_looks_for() -> None:
    """Each kind of call is found, and reading is not."""
    code = """
def f():
    os.rename(a, b); path.unlink(); shutil.rmtree(x); open(p, "wb"); pa.OSFile(p, "wb")
    open(p); os.path.exists(p); text.replace("a", "b"); open(p, "rb"); files.remove(p)
"""
    (function,) = ast.parse(code).body
    assert isinstance(function, ast.FunctionDef)
    assert list(durable_calls(function)) == [
        "os.rename", "path.unlink", "shutil.rmtree", "open", "pa.OSFile",
    ]  # fmt: skip
    assert not fires(function)


def test_the_scan_sees_transactions() -> None:
    """Where SQLAlchemy may be known, those that begin or end; in coroutines, too."""
    code = """
async def f():
    with engine.begin() as c: c.execute(x)
    with c.begin_nested(): c.commit(); database.write_schema(); database.write(); self.run.begin
"""
    (function,) = ast.parse(code).body
    assert isinstance(function, ast.AsyncFunctionDef)
    everywhere = ["database.write_schema"]
    assert list(durable_calls(function)) == everywhere
    in_store = ["engine.begin", "c.begin_nested", "c.commit", *everywhere]
    assert sorted(durable_calls(function, sql=True)) == sorted(in_store)
