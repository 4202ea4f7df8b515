"""The guides are true: what each shows is executed in order, and prints what it says it prints.

All share one service, as their readers do: `cbp serve --engine local --translators flows`. So each
names its dataflows and files differently from the others. One speaks of a cluster, and gets one.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from controller.guides import PAGES, Guide, find_guide, guides
from controller.server.service_process import ServiceProcess, free_port, settings_of
from tests.executed_documents import LANGUAGES, blocks, languages, play
from tests.gate.service_logs import ended, watch
from tests.machine import folder_in_memory

ON_SPARK = {"read-with-spark"}
IN_EACH_RUN = {
    "start",
    "a-record-stops-a-stage",
    "add-a-stage",
    "change-your-code",
    "correct-a-file",
    "fix-a-quarantined-file",
    "roll-back",
}
"""What nearly every user reads: one of these is played by default; the others are soaks."""


def _marks(name: str) -> list[pytest.MarkDecorator]:
    spark = [pytest.mark.spark] if name in ON_SPARK else []
    return spark if name in IN_EACH_RUN else [*spark, pytest.mark.soak]


ON_A_CLUSTER = "run-on-a-cluster"
EACH = [
    pytest.param(one, id=one.name, marks=_marks(one.name))
    for one in guides()
    if one.name != ON_A_CLUSTER
]


@pytest.fixture(scope="module")
def service() -> Iterator[ServiceProcess]:
    """Give the service that the guides speak of, with its data where they say."""
    with folder_in_memory() as folder:
        root = folder / "cbp-data"
        root.mkdir()
        (folder / "flows").mkdir()
        settings = settings_of(root, port=free_port(), engine="local")
        command = (sys.executable, "-m", "controller.cli", "serve", "--translators", "../flows")
        service = ServiceProcess(settings, log=folder / "service.log", command=command)
        watch(service.log)
        try:
            service.wait_until_ready()
            yield service
        finally:
            service.stop()
            ended(service.log)


@pytest.mark.part(every=7)
@pytest.mark.parametrize("guide", EACH)
def test_a_guide_prints_what_it_says(guide: Guide, service: ServiceProcess):
    """Each block runs after the one before it; something in each guide is executed."""
    environment = {"CBP_PORT": str(service.settings.port), "CBP_ROOT": "cbp-data"}
    assert play(guide.text, service.settings.root.parent, environment)


@pytest.mark.soak
@pytest.mark.spark
@pytest.mark.cluster
def test_the_guide_to_clusters_prints_what_it_says(tmp_path: Path):
    """Through a service whose runs are jobs of a standalone cluster of one worker."""
    from tests.system import processes  # brings Spark, which nobody else here needs

    cluster = processes.SparkCluster(tmp_path, cores=2)
    service = processes.Instance(
        tmp_path,
        "service",
        engine="spark",
        spark_master=cluster.url,
        environment=cluster.environment,
        spark_conf={"spark.executor.memory": "512m"},
        spark_driver_memory="512m",
    )
    try:
        service.start()
        service.wait()
        environment = {
            "CBP_PORT": str(service.settings.port),
            "CBP_ROOT": str(tmp_path),
            "CBP_TOKEN": processes.TOKEN,
        }
        assert play(find_guide(ON_A_CLUSTER).text, tmp_path, environment)
        assert cluster.executors()
    finally:
        service.kill()
        cluster.close()


@pytest.mark.parametrize("page", sorted(PAGES.glob("*.md")), ids=lambda page: page.stem)
def test_every_block_is_of_a_kind_that_is_run_or_shown(page: Path):
    """A block in a language that nothing runs must be marked as shown only (`console`)."""
    text = page.read_text(encoding="utf-8")
    assert languages(text) <= LANGUAGES
    saved = {block.name for block in blocks(text) if block.language in ("yaml", "python")}
    assert not [block for block in blocks(text) if block.language == "yaml" and not block.name]
    assert "" not in saved or any(block.runs for block in blocks(text))
