"""`kill -9` while files that lie are dropped and uploaded: ready again within ten seconds.

And nothing is lost or taken twice: as `python -m tests.fuzz --structured --service`, with kills in
between. `CBP_KILLS` sets their number (1 by default). The seconds are the processor's, so that a
machine under load is no reason to fail: an idle one takes no longer by the clock.
"""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import httpx
import pytest

from tests.fuzz.service import PACKAGE, Plan, install_names, is_idle, wrong
from tests.fuzz.structured import structured_case
from tests.system.processes import REPOSITORY, TOKEN, Instance, descendants, until

pytestmark = [pytest.mark.system, pytest.mark.timeout(900)]

KILLS = int(os.environ.get("CBP_KILLS", "1"))
SEED = int(os.environ.get("CBP_SEED", "1"))
FILES = 63
READY_SECONDS = 10.0


def processor_seconds(pid: int) -> float:
    """Return the processor's time that a process took so far; 0 if it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.soak
def test_a_service_is_ready_in_ten_seconds_and_every_file_has_its_fate(tmp_path: Path) -> None:
    """Each is accepted as another reader reads it, or in quarantine with its code, once."""
    chance = random.Random(SEED)
    plan = Plan(range(FILES * (KILLS + 1)), structured_case, uploads=True)
    install_names(tmp_path / "packages")
    service = Instance(
        tmp_path,
        "one",
        environment={"PYTHONPATH": f"{REPOSITORY}:{tmp_path / 'packages'}"},
        engine="local",
        allowed_packages=(PACKAGE,),
    )
    service.start()
    try:
        service.wait()
        headers = {"Authorization": f"Bearer {TOKEN}"}
        url = service.settings.url
        with httpx.Client(base_url=url, headers=headers, trust_env=False, timeout=60) as client:
            answer = client.post("/api/v1/dataflows", json=plan.document)
            assert answer.status_code == 201, answer.text
            for kill in range(KILLS + 1):
                files = plan.files[kill * FILES : (kill + 1) * FILES]
                plan.drop(service.settings.drop_root, files)
                assert plan.upload(client, files) == []
                if kill < KILLS:
                    time.sleep(chance.uniform(0, 1))
                    service.kill()
                    service.start()
                    service.wait()
                    taken = sum(map(processor_seconds, [service.pid, *descendants(service.pid)]))
                    assert 0.1 < taken < READY_SECONDS
            drop_root = service.settings.drop_root
            until(lambda: not plan.waits(drop_root), "files wait")
            until(lambda: is_idle(client), "something goes on")
            outcomes, actual = wrong(plan, client, drop_root)
        assert actual == []
        assert sum(outcomes.values()) == len(plan.files)
        assert outcomes["accepted"] > len(plan.files) // 10
    finally:
        service.kill()
