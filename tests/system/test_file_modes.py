"""Nothing that a service writes is open to other users, whatever umask it was started under."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from controller.cli import main
from controller.cli.session import Session
from controller.client.service_client import ServiceClient
from controller.server import process
from controller.server.service_process import free_port
from controller.settings import load_settings
from tests.system.processes import Instance, descendants, until
from tests.system.sockets import listening

OPEN_TO_OTHERS = 0o077
OPEN_FILE = 0o066
"""Spark lets everybody execute its copies of jars, which nobody else can read or reach."""
DOCUMENT: dict[str, Any] = {
    "name": "urls",
    "sources": {"visits": {"schema": "url STRING", "format": "jsonl"}},
    "stages": {"count": {"translator": "url_count", "inputs": {"urls": "visits"}, "buckets": 2}},
}

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]


@pytest.mark.parametrize(
    "engine", ["local", pytest.param("spark", marks=[pytest.mark.spark, pytest.mark.soak])]
)
def test_all_that_a_service_writes_is_its_users_alone(engine: str, tmp_path: Path) -> None:
    """Folders, data, database, logs, drop folders, cache, scratch, sockets, files of the JVM.

    While it runs, behind a kill, and of `cbp recover`: what a umask of 000 leaves private, every
    other one does. And no process of it listens but on the loopback address; without Spark, none
    but the service, at one port.
    """
    root, logs = tmp_path / "root", tmp_path / "logs"
    logs.mkdir()
    # The paths of its sockets have 107 bytes at most, and pytest's folders have long names.
    short = TemporaryDirectory(prefix="cbp-modes-")
    temporary = Path(short.name)
    service = Instance(
        root,
        "one",
        logs=logs,
        environment={
            "TMPDIR": str(temporary),
            "CBP_READER_PROCESSES": "true",
            "SPARK_LOCAL_IP": "",  # as on a machine where nobody set it
        },
        engine=engine,
    )
    try:
        service.start(umask=0)
        service.wait()
        work(service)
        processes = [service.pid, *descendants(service.pid)]
        written = [*below(root), *below(temporary), *held_open(processes)]
        assert len(written) > 40
        assert opened(written) == {}
        own, ports = ("127.0.0.1", service.settings.port), listening(processes)
        assert own in ports
        assert {address for address, _ in ports} == {"127.0.0.1"}, ports
        assert engine == "spark" or ports == {own}
    finally:
        service.kill()
    with short:
        assert opened([*below(root), *below(temporary)]) == {}


def test_the_folder_of_a_new_token_is_private(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is the first that a new service makes, before anything else is set up."""
    settings = load_settings(root=tmp_path / "new" / "root", port=free_port())
    monkeypatch.setattr(process, "run_server", lambda settings, code, announce: True)
    before = os.umask(0)
    try:
        with suppress(SystemExit):
            main(["serve"], session=Session(settings))
    finally:
        os.umask(before)
    written = list(below(tmp_path / "new"))
    assert settings.token_file in written
    assert opened([tmp_path / "new", *written]) == {}


def work(service: Instance) -> None:
    """Let a good file and a bad one be read, a run end, and everything be looked at."""
    with ServiceClient(service.settings) as client:
        content = json.dumps(DOCUMENT).encode()
        client.post("dataflows", content=content, content_type="application/json")
        incoming = service.settings.drop_root / "urls" / "visits" / "incoming"
        files = {"good": '{"url": "a"}\n{"url": "b"}\n', "bad": '{"url": 1}\n'}
        for name, text in files.items():
            part = incoming / f".{name}"
            part.write_text(text)
            part.chmod(0o600)  # a producer's, and not ours
            part.rename(incoming / f"{name}.jsonl")
        until(lambda: epochs(client) == 1, "no run ended")
        until(lambda: list((incoming.parent / "quarantine").iterdir()), "nothing was rejected")
        client.post("dataflows", "urls", "scrub")
        path = ("dataflows", "urls", "scrub")
        until(lambda: client.get(*path)["status"] != "running", "the scrub goes on")


def epochs(client: ServiceClient) -> int:
    """Return how many epochs the stage has."""
    (stage,) = client.get("dataflows", "urls")["stages"]
    return int(stage["epoch"])


def below(folder: Path) -> Iterator[Path]:
    """Yield everything below a folder; links are not followed."""
    for place, folders, files in os.walk(folder):
        yield from (Path(place) / name for name in (*folders, *files))


def held_open(processes: list[int]) -> Iterator[Path]:
    """Yield the files elsewhere that processes hold open for writing."""
    for pid in processes:
        try:
            handles = list(Path(f"/proc/{pid}/fdinfo").iterdir())
        except OSError:
            continue
        for handle in handles:
            try:
                flags = int(handle.read_text().split("flags:")[1].split()[0], 8)
                target = Path(os.readlink(f"/proc/{pid}/fd/{handle.name}"))
            except (OSError, IndexError):
                continue
            if flags & os.O_ACCMODE and target.is_file() and target.parts[1] not in ("dev", "proc"):
                yield target


def opened(paths: list[Path]) -> dict[str, str]:
    """Return the paths that others may read, write or search, with their modes."""
    actual = {}
    for path in paths:
        try:
            mode = path.lstat().st_mode
        except FileNotFoundError:
            continue
        open_ = mode & (OPEN_FILE if stat.S_ISREG(mode) else OPEN_TO_OTHERS)
        if not stat.S_ISLNK(mode) and open_ and "logs" not in path.parts:
            actual[str(path)] = stat.filemode(mode)
    return actual
