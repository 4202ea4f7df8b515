"""Cases through a service: odd names and damaged contents in its drop folder, its health asked.

python -m tests.fuzz --service --cases 2000

Every file that a service takes in is accepted, with the records that another reader finds, or
is in quarantine with a coded reason; what it does not take in stays and is shown. Meanwhile it
is healthy, and its memory stays as it was. In the end its state is what all accepted files say, and
a scrub finds whole whatever it wrote.
"""

from __future__ import annotations

import os
import random
import re
import statistics
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import groupby, islice
from pathlib import Path
from typing import Any

import httpx

from controller.app import Service, api_of
from controller.settings import load_settings
from tests.authored import forget, install, write
from tests.bench.measurements.session_memory import session_memory_bytes
from tests.controller.api.app_transport import TOKEN, AppTransport
from tests.fuzz.cases import NAMES, SCHEMA, Case, case_of
from tests.fuzz.oracle import is_same, records, value_of
from tests.waiting import looks

__all__ = ["Plan", "install_names", "is_idle", "play_in_process", "play_stepped", "wrong"]

PACKAGE = "fuzzed_names"
DATAFLOW = "fuzzed"
ANSWER_SECONDS_MAX = 15.0
"""For a service that shares two cores with others; it answers in milliseconds."""
SETTLE_SECONDS_MAX = 1_800.0
ROWS_MAX = 20_000
LOOKED_AT = 500
MEMORY_LOOKS_MIN = 10
GROWTH_MAX = 1.25

_STAGES = """
from cbp import Input, Output, State, Translate


class Names(Translate):
    rows = Input("name STRING", route_by="name")
    counts = State("name STRING, n BIGINT")
    totals = Output("name STRING, n BIGINT", key="name")

    def translate(self, key, group, out):
        n = sum(1 for _ in group.rows) + sum(row.n for row in group.counts)
        out.counts(key.name, n)
        out.totals(key.name, n)
"""
_ODD = (
    *(b"plain {}.txt", b" {} ", b"-rf {}", b"{}\n.csv", b"{}\t\r\x1b[31m", b"{}%2e%2f.."),
    *("é漢😀 {}".encode(), b"\xff\xfe{}", b"{}.reason.json", b"{}.jsonl.gz", b"{}" + b"x" * 246),
    *(b"{}=?&#;|*", b"CON{}", b"{}.", "\u202e{}".encode(), b"$(touch {})", b"{}'\"`\\", b"{}"),
)
_STAYS = (b".{}.csv", b"{}.part", b"{}.tmp", b"{}.crdownload", b"{}~", b".manifest-{}.json.part")


@dataclass(frozen=True, slots=True)
class Dropped:
    """One file: whose it is, and what it is called; `stays` where nobody is to take it."""

    number: int
    source: str
    name: bytes
    case: Case
    stays: bool
    is_uploaded: bool = False

    def __str__(self) -> str:
        return f"seed {self.number} ({self.source}, {self.name!r})"


def odd_name(chance: random.Random, number: int) -> tuple[bytes, bool]:
    """Return a name that holds a number, and whether a file of that name stays where it is."""
    stays = chance.random() < 0.04
    pattern = chance.choice(_STAYS if stays else _ODD)
    return pattern.replace(b"{}", f"n{number:07d}n".encode()), stays


class Plan:
    """Files of some seeds, a source for each format with its options, and the dataflow."""

    def __init__(
        self, seeds: Sequence[int], make: Callable[[int], Case] = case_of, *, uploads: bool = False
    ) -> None:
        self.files: list[Dropped] = []
        self.refused: dict[int, str] = {}
        sources: dict[str, tuple[str, str, dict[str, str]]] = {}
        for seed in seeds:
            case = make(seed)
            options = sorted(case.options.items())
            marks = [re.sub(r"\W", "semi", f"{k[:4]}_{v[:4]}".lower()) for k, v in options]
            source = "_".join([case.format, *marks])
            sources[source] = case.schema, case.format, case.options
            name, stays = odd_name(random.Random(seed), seed)
            uploaded = uploads and not stays and seed % 2 == 0 and _is_text(name)
            self.files.append(Dropped(seed, source, name, case, stays, uploaded))
        # The source with the most records: with a few rejected files there is nothing to compare.
        taken = Counter[str]()
        for file in self.files[:LOOKED_AT]:
            if file.case.schema == SCHEMA and not file.stays:
                taken[file.source] += _records_of(file.case)
        ((self.counted, _),) = taken.most_common(1)
        self.document = {
            "name": DATAFLOW,
            "sources": {
                name: {"schema": schema, "format": format_, "options": options}
                for name, (schema, format_, options) in sources.items()
            },
            "stages": {"count": {"translator": "fuzzed_names", "inputs": {"rows": self.counted}}},
        }

    def drop(self, drop_root: Path, files: Sequence[Dropped]) -> None:
        """Let files land, each as a whole, and here and there what is no file."""
        for file in files:
            if file.is_uploaded:
                continue
            incoming = os.fsencode(drop_root / DATAFLOW / file.source / "incoming")
            part = incoming + b"/.writing"
            with open(part, "wb") as whole:
                whole.write(file.case.data)
            os.rename(part, incoming + b"/" + file.name)
            if file.number % 97 == 0:
                with suppress(FileExistsError):
                    os.mkfifo(incoming + b"/fifo.csv")
                    os.symlink("/etc/passwd", incoming + b"/link.csv")
                    os.mkdir(incoming + b"/folder.csv")

    def upload(self, client: httpx.Client, files: Sequence[Dropped]) -> list[str]:
        """Send the files that are not dropped; return which answers were neither 202 nor a 4xx."""
        odd = []
        for file in files:
            if file.is_uploaded:
                path = f"/api/v1/dataflows/{DATAFLOW}/sources/{file.source}/files"
                query = {"name": file.name.decode()}
                answer = client.post(path, params=query, content=file.case.data, timeout=60)
                if answer.status_code != 202:
                    code = answer.json()["error_code"] if answer.status_code < 500 else ""
                    self.refused[file.number] = f"upload refused: {code}"
                    if not 400 <= answer.status_code < 500 or not code:
                        odd.append(f"{file}: {answer.status_code} {answer.text[:200]}")
        return odd

    def waits(self, drop_root: Path) -> bool:
        """Tell whether a file waits that is going to be taken."""
        return any(
            os.path.lexists(
                os.fsencode(drop_root / DATAFLOW / file.source / "incoming") + b"/" + file.name
            )
            for file in self.files
            if not (file.stays or file.is_uploaded)
        )


def _is_text(name: bytes) -> bool:
    try:
        name.decode()
    except UnicodeDecodeError:
        return False
    return True


def _records_of(case: Case) -> int:
    """Return how many records another reader finds; 0 if it finds the file damaged."""
    try:
        return len(records(case))
    except Exception:
        return 0


def install_names(folder: Path) -> None:
    """Write the package with the stage that counts names."""
    write(folder, {f"{PACKAGE}/__init__.py": "", f"{PACKAGE}/stages.py": _STAGES})
    install(folder, PACKAGE, {"fuzzed_names": f"{PACKAGE}.stages:Names"})


class Health:
    """Asks a service how it is; remembers what was wrong, the slowest answer, and its memory.

    Args:
        client: Asks.
        session: The service's process, which leads its session; 0: its memory is not measured.
    """

    PATHS = (
        "health/live",
        "health/ready",
        f"dataflows/{DATAFLOW}",
        f"dataflows/{DATAFLOW}/sources",
    )

    def __init__(self, client: httpx.Client, session: int = 0) -> None:
        self._client, self._session = client, session
        self.wrong: list[str] = []
        self.memory: list[int] = []
        self.asked, self.slowest = 0, 0.0

    def ask(self) -> None:
        """Ask everything once."""
        for path in self.PATHS:
            begun = time.monotonic()
            try:
                answer = self._client.get(f"/api/v1/{path}", timeout=ANSWER_SECONDS_MAX)
            except httpx.TransportError as error:
                self.wrong.append(f"{path}: {error!r} after {time.monotonic() - begun:.1f} s")
                continue
            self.asked += 1
            self.slowest = max(self.slowest, time.monotonic() - begun)
            if answer.status_code != 200:
                self.wrong.append(f"{path}: {answer.status_code} {answer.text[:300]}")
            elif path.endswith("ready") and answer.json()["degraded"]:
                self.wrong.append(f"{path}: {answer.text[:300]}")
        if self._session:
            self.memory.append(session_memory_bytes(self._session))

    def grown(self) -> list[str]:
        """Return whether the memory's last quarter needs more than its second one, in words."""
        quarter = len(self.memory) // 4
        if quarter < MEMORY_LOOKS_MIN:
            return []
        early, late = max(self.memory[quarter : 2 * quarter]), max(self.memory[-quarter:])
        print(
            f"memory at most: {early >> 20} MB in the second quarter, {late >> 20} MB in the last; "
            f"by a line through the last three: {_rise(self.memory[quarter:]) / 2**20:+.1f} MB"
        )
        return [f"memory: {early} bytes, then {late}"] if late > GROWTH_MAX * early else []


def _rise(values: Sequence[int]) -> float:
    """Return by how much a straight line through the values rises from the first to the last."""
    slope, _ = statistics.linear_regression(range(len(values)), values)
    return slope * (len(values) - 1)


def wrong(plan: Plan, client: httpx.Client, drop_root: Path) -> tuple[Counter[str], list[str]]:
    """Return how often what came of the files, and what is not as it must be."""
    outcomes, actual = Counter[str](), list[str]()
    claims = {_number(claim["path"]): claim for claim in _pages(client, "claims")}
    accepted: dict[str, list[tuple[int, Dropped]]] = {}
    for file in plan.files:
        claim = claims.get(file.number)
        left_out = plan.refused.get(file.number, "stays")
        told = left_out if claim is None else str(claim["status"])
        if claim is not None and told == "accepted":
            accepted.setdefault(file.source, []).append((claim["index"], file))
        elif claim is not None and told == "quarantined":
            told = (claim["reason"] or {}).get("code", "")
            if not told or not _in_quarantine(drop_root, file, claim["id"]):
                actual.append(f"{file}: refused as {told!r}, but not so in quarantine")
        left = file.stays or file.number in plan.refused
        if left is not (claim is None) or told in ("claiming", "claimed", "duplicate"):
            actual.append(f"{file}: {told}")
        outcomes[told] += 1
    rows = {
        source: _records(client, source, files[0][1].case) for source, files in accepted.items()
    }
    for source, files in accepted.items():
        increments = _pages(client, "increments", flow=source)
        counts = {one["index"]: one["records"] for one in increments}
        actual += _wrong_counts(sorted(files, key=_index), counts)
        actual += _wrong_rows(sorted(files, key=_index), rows[source])
    names = Counter(row[NAMES.index("name")] or "" for row in rows.get(plan.counted, ()))
    state: Counter[str] = Counter()
    for row in _pages(client, "state/count/counts/records"):
        state[row["name"] or ""] += row["n"]
    if not names:
        actual.append("state: no record of the counted source was accepted")
    if state != names:
        actual.append(f"state: not there {names - state}, too many {state - names}"[:600])
    return outcomes, [*actual, *_damages(client)]


def _damages(client: httpx.Client) -> list[str]:
    """Return what a scrub finds damaged of all that the service wrote."""
    path = f"/api/v1/dataflows/{DATAFLOW}/scrub"
    assert client.post(path).status_code == 202
    _until(lambda: client.get(path).json()["status"] != "running", "the scrub goes on")
    answer = client.get(path).json()
    told = [f"scrub: {one['code']} {one['path']}: {one['why']}" for one in answer["damages"]]
    if answer["status"] == "whole" and answer["files"] > len(told):
        return told
    return told or [f"scrub: {answer}"]


def _index(one: tuple[int, Dropped]) -> int:
    return one[0]


def _wrong_counts(files: Sequence[tuple[int, Dropped]], counts: Mapping[int, int]) -> Iterator[str]:
    """Compare how many records each increment has with those of its files."""
    for index, group in groupby(files, _index):
        held = [file for _, file in group]
        expected = sum(_records_of(file.case) for file in held)
        if counts.get(index) != expected:
            yield f"{held[0]}: {counts.get(index)} records, another reader finds {expected}"


def _wrong_rows(files: Sequence[tuple[int, Dropped]], rows: list[tuple[Any, ...]]) -> Iterator[str]:
    """Compare the records of a source with those of its files, in the order of increments.

    Files that became one increment together may be in any order in it. A source can have very many
    records, such as text that is nothing but line ends: then only the first ones are read.
    """
    at = 0
    for _, group in groupby(files, _index):
        left = [file for _, file in group]
        while left and at < ROWS_MAX:
            for file in left:
                try:
                    expected = records(file.case)
                except Exception as error:
                    said = f"{type(error).__name__}: {error}"
                    yield f"{file}: accepted, where another reader says {said}"
                    return
                here = rows[at : at + len(expected)]
                if at + len(expected) > ROWS_MAX:
                    expected = expected[: len(here)]
                if len(here) == len(expected) and all(map(is_same, here, expected)):
                    break
            else:
                yield f"{left[0]}: accepted, and another reader finds other records"
                return
            left.remove(file)
            at += len(expected)
        if at >= ROWS_MAX:
            return
    if at != len(rows):
        yield f"{files[0][1].source}: {len(rows)} records, another reader finds {at}"


def _number(path: str) -> int:
    match = re.search(r"n(\d{7})n", path)
    return int(match[1]) if match else -1


def _in_quarantine(drop_root: Path, file: Dropped, claim: str) -> bool:
    folder = drop_root / DATAFLOW / file.source / "quarantine"
    there = [name for name in os.listdir(folder) if name.startswith(claim)]
    return any(name.endswith(".reason.json") for name in there) and len(there) > 1


def _pages(client: httpx.Client, path: str, **chosen: str) -> Iterator[Any]:
    cursor: str | None = None
    while True:
        query = {"limit": "200", **chosen, **({"cursor": cursor} if cursor else {})}
        answer = client.get(f"/api/v1/dataflows/{DATAFLOW}/{path}", params=query, timeout=60)
        assert answer.status_code == 200, answer.text
        page = answer.json()
        yield from page["items"]
        if not (cursor := page["cursor"]) or not page["items"]:
            return


def _records(client: httpx.Client, source: str, case: Case) -> list[tuple[Any, ...]]:
    """Return the records of a source, in order: all, or `ROWS_MAX` if there are more."""
    rows = islice(_pages(client, f"flows/{source}/records"), ROWS_MAX)
    return [tuple(value_of(name, row[name]) for name in case.names) for row in rows]


@dataclass
class _Asking:
    """Asks in a thread until it has to end."""

    health: Health
    ended: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> None:
        self._thread = threading.Thread(target=self._ask, daemon=True)
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        self._thread.join()

    def _ask(self) -> None:
        while not self.ended.wait(0.2):
            self.health.ask()


def play_in_process(
    seeds: Sequence[int], folder: Path, make: Callable[[int], Case] = case_of
) -> tuple[Counter[str], list[str]]:
    """Play seeds against `cbp serve`, a process of its own, while its health is asked."""
    from tests.system import processes  # brings Spark, which nobody else here needs

    plan = Plan(seeds, make, uploads=True)
    install_names(folder / "packages")
    instance = processes.Instance(
        folder,
        "fuzzed",
        environment={"PYTHONPATH": f"{processes.REPOSITORY}:{folder / 'packages'}"},
        engine="local",
        allowed_packages=(PACKAGE,),
    )
    instance.start()
    try:
        instance.wait()
        with httpx.Client(
            base_url=instance.settings.url,
            headers={"Authorization": f"Bearer {processes.TOKEN}"},
            trust_env=False,
        ) as client:
            answer = client.post("/api/v1/dataflows", json=plan.document, timeout=60)
            assert answer.status_code == 201, answer.text
            health, odd = Health(client, instance.pid), list[str]()
            drop_root = instance.settings.drop_root
            with _Asking(health):
                for at in range(0, len(plan.files), 100):
                    plan.drop(drop_root, plan.files[at : at + 100])
                    odd += plan.upload(client, plan.files[at : at + 100])
                _until(lambda: not plan.waits(drop_root), "files wait")
                _until(lambda: is_idle(client), "the stage runs")
            outcomes, actual = wrong(plan, client, drop_root)
    finally:
        instance.stop()
    print(f"asked {health.asked} times; the slowest answer took {health.slowest:.2f} s")
    return outcomes, [*health.wrong, *health.grown(), *odd, *actual]


def play_stepped(
    seeds: Sequence[int],
    folder: Path,
    make: Callable[[int], Case] = case_of,
    *,
    uploads: bool = False,
) -> tuple[Counter[str], list[str]]:
    """Play seeds against the product's service in this process, stepped by hand."""
    plan = Plan(seeds, make, uploads=uploads)
    install_names(folder / "packages")
    settings = load_settings(
        root=folder,
        engine="local",
        token=TOKEN,
        settle_seconds=0,
        allowed_packages=(PACKAGE,),
    )
    sys.path.insert(0, str(folder / "packages"))
    service = Service(settings)
    try:
        service.lead()
        app = api_of(service)
        with httpx.Client(
            transport=AppTransport(app),
            base_url=settings.url,
            headers={"Authorization": f"Bearer {TOKEN}"},
        ) as client:
            answer = client.post("/api/v1/dataflows", json=plan.document)
            assert answer.status_code == 201, answer.text
            health = Health(client)
            plan.drop(settings.drop_root, plan.files)
            odd = plan.upload(client, plan.files)
            # A pass over a source ends after a second; what it claimed is read by the next one.
            while plan.waits(settings.drop_root) or _claims_are_open(client):
                service.scan()
                health.ask()
            while service.controller.tick().starts:
                assert service.parts.in_flight.wait(timeout=SETTLE_SECONDS_MAX)
                health.ask()
            outcomes, actual = wrong(plan, client, settings.drop_root)
    finally:
        service.stop()
        sys.path.remove(str(folder / "packages"))
        forget(PACKAGE)
    return outcomes, [*health.wrong, *odd, *actual]


def _claims_are_open(client: httpx.Client) -> bool:
    return any(one["status"] in ("claiming", "claimed") for one in _pages(client, "claims"))


def is_idle(client: httpx.Client) -> bool:
    """Tell whether no file is taken in, and the stage has nothing to do."""
    if _claims_are_open(client):
        return False
    shown = client.get(f"/api/v1/dataflows/{DATAFLOW}", timeout=60).json()
    (stage,) = shown["stages"]
    return stage["lag_seconds"] is None and stage["state"] != "running"


def _until(holds: Callable[[], bool], why: str) -> None:
    for _ in looks(lambda: why, seconds=SETTLE_SECONDS_MAX, pause_seconds=0.5):
        if holds():
            return
