"""The READMEs are true: their Python and their commands run, and print what they say they print.

The pictures are the graphs.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from cbp.model.dataflow.fusion import choose_leaders
from cbp.model.dataflow.picture import mermaid
from controller.demo.service.process import ServiceProcess, free_port, settings_of
from controller.registry import Registry
from stages.flows import clustering, crawl_queue, set_diff

README = Path(__file__).resolve().parents[1] / "README.md"
APPLICATIONS = README.parent / "stages" / "README.md"
REST = "## The same over REST"
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
SAVED = re.compile(r"Save as\s+`([^`]+)`", re.IGNORECASE)
TIMEOUT = 180


@dataclass(frozen=True)
class Block:
    """One fenced block.

    Attributes:
        expected: The `text` block that follows it; empty: none does.
        name: The file that the text before it calls it.
    """

    language: str
    content: str
    expected: str = ""
    name: str = ""


def blocks(text: str) -> list[Block]:
    """Return the blocks in order; a `text` block belongs to the one before it."""
    found: list[Block] = []
    end = 0
    for match in FENCE.finditer(text):
        language, content = match[1], match[2]
        if language == "text" and found:
            found[-1] = Block(found[-1].language, found[-1].content, content, found[-1].name)
        else:
            names = SAVED.findall(text[end : match.start()])
            found.append(Block(language, content, name=names[-1] if names else ""))
        end = match.end()
    return found


def part(title: str) -> list[Block]:
    """Return the blocks of one section."""
    _, _, rest = README.read_text(encoding="utf-8").partition(f"{title}\n")
    assert rest, title
    return blocks(rest.partition("\n## ")[0])


def run_python(content: str, folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", content],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_authors_file_prints_what_it_says(tmp_path: Path):
    """The one-file dataflow runs in memory with exactly the output shown."""
    (block,) = part("## Your own dataflow, in one file")
    file = tmp_path / block.name
    file.write_text(block.content, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, file], capture_output=True, text=True, cwd=tmp_path, timeout=TIMEOUT
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == block.expected


@pytest.fixture
def service(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[ServiceProcess]:
    """Give the service of the README's `cbp serve`, with its data where it says.

    Without Spark, unless the test asks for it as a parameter.
    """
    root = tmp_path / "cbp-data"
    root.mkdir()
    engine = getattr(request, "param", "local")
    settings = settings_of(root, port=free_port(), engine=engine)
    service = ServiceProcess(settings, log=tmp_path / "service.log")
    yield service
    service.stop()


@pytest.mark.system
@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_the_curl_sequence_prints_what_it_says(tmp_path: Path, service: ServiceProcess):
    """Each block runs after the one before it, in one shell, with exactly the output shown."""
    script, expected, checked = ["set -eu"], [], []
    for number, block in enumerate(part(REST)):
        if block.language == "yaml":
            (tmp_path / block.name).write_text(block.content, encoding="utf-8")
        elif block.language == "bash" and block.content != "cbp serve\n":
            script.append(f"{block.content}echo '--- {number}'")
            expected.append(f"{block.expected}--- {number}\n")
        elif block.language == "python":
            checked.append(block)
    done = subprocess.run(
        ["bash", "-c", "\n".join(script)],
        cwd=tmp_path,
        env={**os.environ, "CBP_PORT": str(service.settings.port)},
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
    )
    assert done.stdout == "".join(expected), done.stderr + "\n".join(service.last_lines())
    assert checked
    for block in checked:
        assert run_python(block.content, tmp_path) == block.expected


@pytest.mark.system
@pytest.mark.timeout(1000)
@pytest.mark.parametrize(
    "service",
    ["local", pytest.param("spark", marks=[pytest.mark.spark, pytest.mark.soak])],
    indirect=True,
)
def test_the_applications_print_what_it_says(tmp_path: Path, service: ServiceProcess):
    """Folders of files in, records out; every block after the one before it, in one shell.

    The same to the last digit with Spark, which is what `cbp serve` starts.
    """
    service.wait_until_ready()
    script = ["set -eu", f'cbp() {{ {shlex.quote(sys.executable)} -m controller.cli "$@"; }}']
    expected, found = [], blocks(APPLICATIONS.read_text(encoding="utf-8"))
    for number, block in enumerate(found):
        if block.language == "yaml":
            (tmp_path / block.name).write_text(block.content, encoding="utf-8")
        elif block.language == "bash":
            script.append(f"{block.content}echo '--- {number}'")
            expected.append(f"{block.expected}--- {number}\n")
    done = subprocess.run(
        ["bash", "-c", "\n".join(script)],
        cwd=tmp_path,
        env={
            **os.environ,
            "CBP_PORT": str(service.settings.port),
            "CBP_ROOT": "cbp-data",
            "COLUMNS": "80",
        },
        capture_output=True,
        text=True,
        timeout=4 * TIMEOUT,
    )
    assert done.stdout == "".join(expected), done.stderr + "\n".join(service.last_lines())
    assert len(expected) == 6


def test_the_pictures_are_the_graphs_of_the_applications():
    """Each as `cbp explain --format mermaid` draws it, in the order of the text."""
    found = blocks(APPLICATIONS.read_text(encoding="utf-8"))
    documents = [yaml.safe_load(block.content) for block in found if block.language == "yaml"]
    visits, ranks = documents
    ready = [crawl_queue.document(), set_diff.document(), clustering.document()]
    compiled = map(Registry(("cbp",)).compile, [visits, *ready, ranks])
    drawn = [mermaid(dataflow, choose_leaders(dataflow)).rstrip() for dataflow in compiled]
    assert [b.content.rstrip() for b in found if b.language == "mermaid"] == drawn


def test_every_block_is_of_a_kind_that_is_run_or_shown():
    """A block in a language that nothing runs must be marked as shown only (`console`)."""
    text = "".join(one.read_text(encoding="utf-8") for one in (README, APPLICATIONS))
    languages = {match[1] for match in FENCE.finditer(text)}
    assert languages == {"bash", "text", "python", "yaml", "console", "mermaid"}


def test_the_first_screen_names_both_commands():
    """A newcomer finds the main job and the tests without scrolling."""
    first = "\n".join(README.read_text(encoding="utf-8").splitlines()[:20])
    assert "bash deploy/demo.sh" in first
    assert "bash deploy/test.sh" in first
