"""What a file of tests leaves behind is found and named."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.gate.__main__ import REPO
from tests.gate.leftovers import Leftovers, Stock

CONFTEST = """
import sys
sys.path.insert(0, {repo!r})
import pytest
from tests.gate.leftovers import Leftovers

def pytest_configure(config):
    config.pluginmanager.register(Leftovers(grace_seconds=0.3))

@pytest.fixture(scope="session")
def of_session():
    import subprocess, sys
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    yield
    child.kill()
    child.wait()
"""
SOUND = """
def test_first(of_session):
    pass

def test_last():
    import threading
    threading.Thread(target=lambda: None).start()
"""
LEAVERS = {
    "thread": """
import threading
threading.Thread(target=threading.Event().wait, name="left-behind", daemon=True).start()
""",
    "process": """
import subprocess, sys
KEPT.append(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(20)"]))
""",
    "port": """
import socket
KEPT.append(socket.create_server(("127.0.0.1", 0)))
""",
    "file": """
import tempfile
tempfile.mkdtemp(prefix="left-")
""",
}


def play(folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "ignore"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # their import takes seconds
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "conftest.py").write_text(CONFTEST.format(repo=str(REPO)), encoding="utf-8")
    (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    (folder / "test_a.py").write_text(SOUND, encoding="utf-8")
    return folder


def test_what_the_session_holds_and_what_ends_is_not_left_behind(project: Path) -> None:
    """A fixture of the session may keep a process; a thread that ends by itself is no leftover."""
    assert "2 passed" in play(project)


@pytest.mark.part(every=2)
@pytest.mark.parametrize("kind", LEAVERS)
def test_a_leaver_is_named(project: Path, kind: str) -> None:
    """The file's last test fails, with what was left; the file after it does not."""
    lines = LEAVERS[kind].strip().replace("\n", "\n    ")
    text = f"KEPT = []\n\ndef test_leaves():\n    {lines}\n\ndef test_last():\n    pass\n"
    (project / "test_b.py").write_text(text, encoding="utf-8")
    (project / "test_c.py").write_text("def test_after():\n    pass\n", encoding="utf-8")
    said = play(project)
    assert "ERROR test_b.py::test_last" in said
    assert "test_b.py leaves behind:" in said
    assert f"  {kind} " in said
    assert "5 passed, 1 error" in said


def test_what_is_ending_is_waited_for() -> None:
    """Looked for again until the grace is over, and no longer."""
    looks: list[int] = []
    gone_after = 3

    def stock(_: object) -> Stock:
        looks.append(1)
        return Stock(threads={7: "ending"} if len(looks) <= gone_after else {})

    def pause(_: float) -> None:
        pass

    assert Leftovers(stock, pause, grace_seconds=1).left_since(Stock()) == []
    looks.clear()
    gone_after = 10**9
    assert Leftovers(stock, pause, grace_seconds=0.1).left_since(Stock()) == ["thread 'ending'"]
