"""One process serves a SQLite database; the lock ends with the process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cbp.errors import OperatingError
from controller.store.base import open_store
from controller.store.errors import DatabaseInUseError


@pytest.fixture
def url(tmp_path: Path) -> str:
    """Give the URL of a SQLite file that does not exist yet, nor does its folder."""
    return f"sqlite:///{tmp_path}/new folder/cbp.db"


HOLDER = (
    "import sys; from controller.store.base import open_store; s = open_store(sys.argv[1]);"
    "print('ready', flush=True); sys.stdin.readline()"
)


def test_a_second_process_is_refused_until_the_first_is_dead(url: str) -> None:
    """One process serves a SQLite file; its lock ends with it, even by SIGKILL."""
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, url],
        cwd=Path(__file__).parents[4],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "ready\n"
        with pytest.raises(DatabaseInUseError) as refused:
            open_store(url)
        assert refused.value.details["holder"] == str(holder.pid)
        open_store(url, exclusive=False).close()
        holder.kill()
    open_store(url).close()


def test_a_store_that_could_not_open_gives_up_its_lock(url: str, tmp_path: Path) -> None:
    """After a failed start the next one does not find the file in use."""
    (tmp_path / "new folder").mkdir()
    path = Path(url.removeprefix("sqlite:///"))
    path.write_bytes(b"no database at all, but longer than a header" * 100)
    for _ in range(2):
        with pytest.raises(OperatingError) as failed:
            open_store(url)
        assert failed.value.code == "database_damaged"
    path.unlink()
    open_store(url).close()
