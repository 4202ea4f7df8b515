"""The READMEs are true: their Python and their commands run, and print what they say they print.

The pictures are the graphs.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from cbp.model.plan.fusion import choose_leaders
from cbp.model.plan.picture import mermaid
from controller.registry import Registry
from controller.server.service_process import ServiceProcess, free_port, settings_of
from stages.flows import clustering, crawl_queue, pagerank, set_diff
from tests.executed_documents import LANGUAGES, Block, blocks, languages, play
from tests.gate.service_logs import ended, watch

README = Path(__file__).resolve().parents[1] / "README.md"
APPLICATIONS = README.parent / "stages" / "README.md"
REST = "## The same over REST"
TIMEOUT = 180.0


def part(title: str) -> list[Block]:
    """Return the blocks of one section."""
    _, _, rest = README.read_text(encoding="utf-8").partition(f"{title}\n")
    assert rest, title
    return blocks(rest.partition("\n## ")[0])


def test_the_authors_file_prints_what_it_says(tmp_path: Path):
    """The one-file dataflow runs in memory with exactly the output shown."""
    assert play(part("## Your own dataflow, in one file"), tmp_path) == 1


@pytest.fixture
def service(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[ServiceProcess]:
    """Give the service of the README's `cbp serve`, with its data where it says.

    Without Spark, unless the test asks for it as a parameter.
    """
    root = tmp_path / "cbp-data"
    root.mkdir()
    engine = getattr(request, "param", "local")
    (own,) = part("## Your own dataflow, in one file")
    (tmp_path / own.name).write_text(own.content, encoding="utf-8")
    settings = settings_of(root, port=free_port(), engine=engine)
    command = sys.executable, "-m", "controller.cli", "serve", "--translators", tmp_path / own.name
    service = ServiceProcess(settings, log=tmp_path / "service.log", command=(*map(str, command),))
    watch(service.log)
    yield service
    service.stop()
    ended(service.log)


@pytest.mark.system
@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_the_curl_sequence_prints_what_it_says(tmp_path: Path, service: ServiceProcess):
    """Each block runs after the one before it, in one shell, with exactly the output shown."""
    assert play(part(REST), tmp_path, {"CBP_PORT": str(service.settings.port)}) == 1


@pytest.mark.soak
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
    every = blocks(APPLICATIONS.read_text(encoding="utf-8"))
    text = [block for block in every if block.language != "python"]  # parts of modules, as shown
    environment = {"CBP_PORT": str(service.settings.port), "CBP_ROOT": "cbp-data"}
    assert play(text, tmp_path, environment, seconds_max=4 * TIMEOUT) == 7


def test_the_pictures_are_the_graphs_of_the_applications():
    """Each as `cbp explain --format mermaid` draws it, in the order of the text."""
    actual = blocks(APPLICATIONS.read_text(encoding="utf-8"))
    documents = [yaml.safe_load(b.content) for b in actual if b.language == "yaml" and b.name]
    visits, _ = documents
    ready = [one.document() for one in (crawl_queue, set_diff, clustering, pagerank)]
    compiled = map(Registry(("cbp",)).compile, [visits, *ready])
    drawn = [mermaid(dataflow, choose_leaders(dataflow)).rstrip() for dataflow in compiled]
    assert [b.content.rstrip() for b in actual if b.language == "mermaid"] == drawn


def test_every_block_is_of_a_kind_that_is_run_or_shown():
    """A block in a language that nothing runs must be marked as shown only (`console`)."""
    texts = [one.read_text(encoding="utf-8") for one in (README, APPLICATIONS)]
    assert {language for text in texts for language in languages(text)} == LANGUAGES


def test_the_first_screen_names_the_commands():
    """A newcomer finds the installation, the main job and the tests without scrolling."""
    first = "\n".join(README.read_text(encoding="utf-8").splitlines()[:20])
    assert "bash deploy/entrypoint.sh prepare" in first
    assert "bash deploy/demo.sh" in first
    assert "bash deploy/test.sh" in first
