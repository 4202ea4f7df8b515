"""The gate on real projects of a few tests, with real pytest processes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.gate.__main__ import QUARANTINE, REPO, SHARED, play
from tests.gate.outcomes import read_outcomes
from tests.gate.verdict import Quarantine, parse_quarantine

CONFTEST = """
import sys

import pytest

sys.path.insert(0, {repo!r})
from tests.gate.plugins import pytest_configure


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    for item in items:
        item.add_marker(pytest.mark.xdist_group("all"))
"""
SOUND = """
import pytest

@pytest.mark.parametrize("text", ["a@b", "c::d", "[e]"])
def test_sound(text):
    pass

def test_skipped():
    pytest.skip("not here")
"""
FLAKY = """
from pathlib import Path

def test_flaky():
    mark = Path(__file__).with_name("was-here")
    first = not mark.exists()
    mark.touch()
    assert not first, "the first time it fails"
"""
NOT_SET_UP = """
from pathlib import Path

import pytest

from tests.gate.service_logs import watch

@pytest.fixture(scope="module")
def service():
    mark = Path(__file__).with_name("served")
    first = not mark.exists()
    mark.touch()
    log = Path(__file__).with_name("service.log")
    watch(log)
    log.write_text("it said why")
    assert not first, "answered 500"

@pytest.mark.parametrize("number", range(6))
def test_served(service, number):
    pass
"""
BROKEN = "def test_broken():\n    assert 1 == 2\n"
LEAVER = """
import pytest

@pytest.fixture
def left():
    yield
    raise RuntimeError("at its end")

def test_leaves(left):
    pass
"""

NESTED = """
import subprocess
import sys

def test_nested():
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "test_sound.py"]
    subprocess.run(command, check=True)
"""
THREAD = """
import threading

def test_thread():
    threading.Thread(target=threading.Event().wait, daemon=True).start()
"""


class Project:
    """A folder with tests, and what the gate said of them."""

    def __init__(self, folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self.kept = folder / "kept"
        self._capfd = capfd
        (folder / "conftest.py").write_text(CONFTEST.format(repo=str(REPO)), encoding="utf-8")
        (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")

    def write(self, name: str, text: str) -> None:
        (self.folder / f"test_{name}.py").write_text(text, encoding="utf-8")

    def play(self, *left_out: str) -> tuple[int, list[str]]:
        quarantine = Quarantine(dict.fromkeys(left_out, "2026-11-27 a reason"))
        code = play(self.folder, self.kept, SHARED, quarantine)
        return code, self._capfd.readouterr().out.splitlines()


@pytest.fixture
def project(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Project:
    # Of the plugins, whose import takes longer than these tests, only the one that is needed.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTEST_PLUGINS", "xdist.plugin")
    made = Project(tmp_path, capfd)
    made.write("sound", SOUND)
    return made


def test_sound_tests_are_green_and_on_record(project: Project) -> None:
    """Counted in the last line; each by its plain node id, with its process and its seconds."""
    code, lines = project.play()
    assert code == 0
    assert lines[-1].strip("= ").startswith("3 passed, 1 skipped in ")
    assert not (project.kept / "second.log").exists()
    outcomes = read_outcomes(
        (project.kept / "first.jsonl").read_text(encoding="utf-8").splitlines()
    )
    assert sorted(outcomes) == [
        "test_sound.py::test_skipped",
        *(f"test_sound.py::test_sound[{text}]" for text in ("[e]", "a@b", "c::d")),
    ]
    assert all(outcome.process.startswith("gw") for outcome in outcomes.values())
    assert all(outcome.seconds >= 0 for outcome in outcomes.values())


def test_a_planted_flake_is_green_and_named(project: Project) -> None:
    """It fails beside others and passes alone; both outputs are kept, and pytest's form ends it.

    A fixture of a file that was not made once is one cause of six failures, and each of them
    shows what the service had said.
    """
    project.write("flaky", FLAKY)
    project.write("not_set_up", NOT_SET_UP)
    code, lines = project.play()
    assert code == 0
    assert "gate: 7 tests failed of 2 causes; what failed is run once more, alone" in lines
    (cause,) = [line for line in lines if line.startswith("one cause: ")]
    assert cause.startswith("one cause: 6 tests of test_not_set_up.py were not set up: ")
    assert "answered 500" in cause
    assert lines.count("it said why") == 6
    assert "  test_served[0]: E   AssertionError: answered 500" in lines
    assert "flaky: test_not_set_up.py::test_served[5]" in lines
    assert "flaky: test_flaky.py::test_flaky" in lines
    assert "the first time it fails" in (project.kept / "first.log").read_text(encoding="utf-8")
    assert "7 passed" in (project.kept / "second.log").read_text(encoding="utf-8")
    assert lines[-1].strip("= ").startswith("10 passed, 1 skipped, 7 flaky in ")


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(BROKEN, id="in its call"),
        pytest.param(LEAVER, id="at its end"),
        pytest.param(THREAD, id="behind its end", marks=pytest.mark.soak),
    ],
)
def test_a_planted_fault_is_red_also_after_the_second_run(project: Project, fault: str) -> None:
    """A test that fails twice is red, at whatever time, though another one was flaky."""
    project.write("flaky", FLAKY)
    project.write("fault", fault)
    code, lines = project.play()
    assert code == 1
    assert "flaky: test_flaky.py::test_flaky" in lines
    assert [line for line in lines if line.startswith("FAILED test_fault.py::")]
    assert "gate: red: failed also when run alone" in lines
    assert "1 failed" in lines[-1]


def test_a_file_that_cannot_be_imported_is_red(project: Project) -> None:
    """pytest stops before the first test; no test has failed, and nothing is excused."""
    project.write("import", "import no_such_module\n")
    code, lines = project.play()
    assert code == 1
    assert [line for line in lines if line.startswith("gate: red: pytest ended with ")]


@pytest.mark.soak
def test_a_process_that_dies_gets_one_more_try(project: Project) -> None:
    """A test that kills its process each time is red: pytest-xdist reports it as failed."""
    project.write("death", "import os\n\ndef test_death():\n    os._exit(3)\n")
    code, lines = project.play()
    assert code == 1
    assert "FAILED test_death.py::test_death" in lines


def test_a_test_that_starts_pytest_itself_leaves_the_record_whole(project: Project) -> None:
    """As the check of the quarantine does: what the gate notes is the gate's own process alone."""
    project.write("z_nested", NESTED)  # comes last
    code, lines = project.play()
    assert code == 0
    assert lines[-1].strip("= ").startswith("4 passed, 1 skipped in ")
    record = (project.kept / "first.jsonl").read_text(encoding="utf-8")
    assert len(read_outcomes(record.splitlines())) == 5


def test_a_test_in_quarantine_is_left_out_and_named(project: Project) -> None:
    """One broken test holds nothing back once it is written down."""
    project.write("fault", BROKEN)
    code, lines = project.play("test_fault.py::test_broken")
    assert code == 0
    assert "quarantine: test_fault.py::test_broken (2026-11-27 a reason)" in lines


def test_what_is_in_quarantine_exists() -> None:
    """An entry whose test was renamed or mended away would leave out nothing, unseen."""
    quarantine = parse_quarantine(QUARANTINE.read_text(encoding="utf-8").splitlines())
    if quarantine.reasons:
        command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-m", ""]
        done = subprocess.run(
            [*command, *quarantine.reasons],
            cwd=REPO,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-2000:]
