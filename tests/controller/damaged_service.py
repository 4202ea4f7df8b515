"""A stepped service on real files that can be put back as they were, damaged, and started again."""

from __future__ import annotations

import io
import json
import os
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cbp.engine.read.scrub import scrub
from cbp.engine.storage.files import LocalFiles
from controller.app import Service
from controller.cli import main
from controller.cli.maintenance.doctor import Check, examine
from controller.cli.session import Session
from controller.settings import Settings, load_settings

__all__ = ["NAMES", "Damaged", "counted", "urls_of"]

NAMES = ("one", "other")
SOURCE, STAGE = "visits", "count"
TOKEN = "token-of-the-damages"


class Damaged:
    """Two dataflows that count URLs, with a copy of all their files.

    Args:
        folder: Holds the service's folder and the copy.
    """

    def __init__(self, folder: Path) -> None:
        self.root, self._copy = folder / "root", folder / "copy"
        self.settings: Settings = load_settings(
            root=self.root,
            engine="local",
            token=TOKEN,
            settle_seconds=0,
            reader_processes=False,
            worker_processes=False,
            scrub_days=0,  # its thread may outlive a stop, and the files are put back then
            log_level="ERROR",
        )

    @contextmanager
    def serving(self) -> Iterator[Service]:
        """Start the service; it is stopped in the end."""
        service = Service(self.settings)
        try:
            service.lead()
            yield service
        finally:
            service.stop()

    def register(self, service: Service, *names: str) -> None:
        for name in names or NAMES:
            stage = {"translator": "url_count", "inputs": {"urls": SOURCE}, "buckets": 2}
            sources = {SOURCE: {"schema": "url STRING"}}
            service.controller.register(
                {"name": name, "sources": sources, "stages": {STAGE: stage}}
            )

    def drop(self, number: int, *names: str) -> None:
        """Let the file of a number land, which is the same in every dataflow."""
        for name in names or NAMES:
            incoming = self.settings.drop_root / name / SOURCE / "incoming"
            rows = (json.dumps({"url": url}) + "\n" for url in urls_of(number))
            (incoming / f"{number}.jsonl").write_text("".join(rows))

    def upload(self, service: Service, name: str, number: int) -> None:
        record, dataflow = service.store.dataflow(name), service.controller.dataflow(name)
        data = "".join(json.dumps({"url": url}) + "\n" for url in urls_of(number)).encode()
        file = io.BytesIO(data)
        service.drop_folder.upload(
            service.drop_folder.place(record, dataflow, SOURCE), f"{number}.jsonl", file
        )

    def step(self, service: Service, *, runs: bool = True) -> None:
        """Read what is in the drop folders, then run until nothing starts."""
        service.scan()
        while runs and service.controller.tick().starts:
            assert service.parts.in_flight.wait(timeout=60)

    def keep(self) -> None:
        """Copy all files."""
        shutil.copytree(self.root, self._copy, symlinks=True)

    def restore(self, *parts: str) -> None:
        """Put all files back as they were copied, or these only."""
        for part in parts or ("",):
            path = self.root / part
            _remove(path)
            copied = self._copy / part
            if copied.is_dir():
                shutil.copytree(copied, path, symlinks=True)
            else:
                shutil.copy2(copied, path)

    def file(self, pattern: str, at: int = -1) -> Path:
        """Return a file below the service's folder."""
        return sorted(self.root.glob(pattern))[at]

    def counts(self, service: Service, name: str) -> Counter[str]:
        """Return the state."""
        record, dataflow = service.store.dataflow(name), service.controller.dataflow(name)
        node = dataflow.stages[STAGE]
        (state,) = node.translator.states
        rows = service._engine.records.read_state(record.folder, node, state.name)
        return Counter({row["url"]: row["n"] for row in rows})

    def troubles(self, service: Service, name: str) -> str:
        """Return all that an operator can see of a dataflow."""
        told = [one.words for one in service.controller.troubles(name)]
        told += [stage.paused_because or "" for stage in service.store.stages(name)]
        return "\n".join(told + service.drop_folder.troubled(name))

    def scrubbed(self) -> dict[str, str]:
        """Return what a scrub of the files finds: path to code."""
        actual = {}
        for name in NAMES:
            for looked in scrub(f"{self.settings.tables}/{name}", LocalFiles()):
                if looked.damage is not None:
                    actual[looked.damage.path] = looked.damage.code
        return actual

    def doctor(self, name: str) -> list[Check]:
        """Return what `cbp doctor` finds wrong under a name."""
        checks = examine(Session(self.settings))
        return [check for check in checks if check.name == name and check.status != "ok"]

    def rebuild(self) -> None:
        """Run `cbp recover --rebuild`."""
        main(["recover", "--rebuild", "--json"], session=Session(self.settings))

    def lose_database(self) -> None:
        for end in ("", "-wal", "-shm"):
            _remove(self.root / f"cbp.db{end}")


def urls_of(number: int) -> list[str]:
    """Return the URLs in the file of a number."""
    return ["x", f"y{number % 3}", f"only-{number}"]


def counted(numbers: int) -> Counter[str]:
    """Return the state after so many files."""
    return Counter(url for number in range(numbers) for url in urls_of(number))


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    elif os.path.lexists(path):
        path.unlink()
