"""The service as a child process: it comes up, or says why not, and never outlives its stop."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from controller.server.service_process import (
    ServiceFailedError,
    ServiceProcess,
    choose_port,
    free_port,
    settings_of,
)
from controller.settings import Settings

SERVER = """
import http.server, os, sys
print("here", os.environ["CBP_ROOT"], os.environ.get("CBP_TOKEN"), flush=True)
class Answer(http.server.BaseHTTPRequestHandler):
    log_message = lambda *_: None
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
http.server.HTTPServer(("127.0.0.1", int(os.environ["CBP_PORT"])), Answer).serve_forever()
"""
STUBBORN = """
import signal, subprocess, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
with open("pid", "w") as pipe:
    pipe.write(str(child.pid))
signal.pause()
"""

Start = Callable[[str], ServiceProcess]


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    root = tmp_path / "a folder"
    root.mkdir()
    return settings_of(root, port=free_port(), engine="local")


@pytest.fixture
def start(settings: Settings, tmp_path: Path) -> Iterator[Start]:
    started: list[ServiceProcess] = []

    def start(code: str) -> ServiceProcess:
        command = (sys.executable, "-c", code)
        started.append(ServiceProcess(settings, log=tmp_path / "log", command=command))
        return started[-1]

    yield start
    for service in started:
        service.stop(0.0)


def is_alive(pid: int) -> bool:
    """Whether a process runs; a zombie that nobody has waited for does not."""
    done = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True)
    return bool(done.stdout.strip()) and not done.stdout.startswith("Z")


def test_it_is_ready_once_it_answers(start: Start):
    """Waiting ends with the first answer of the health route."""
    service = start(SERVER)
    service.wait_until_ready(60)
    service.check_alive()


def test_only_the_demos_own_settings_reach_it(
    start: Start, settings: Settings, monkeypatch: pytest.MonkeyPatch
):
    """A token or folder of the user's other service is not taken over."""
    monkeypatch.setenv("CBP_TOKEN", "of-another-service")
    service = start(SERVER)
    service.wait_until_ready(60)
    assert service.last_lines() == [f"here {settings.root} None"]


def test_an_end_before_it_answers_shows_the_log(start: Start):
    """The last lines of the log say what no exit status can."""
    service = start("import sys; print('no Java'); sys.exit(3)")
    with pytest.raises(ServiceFailedError) as caught:
        service.wait_until_ready(60)
    assert caught.value.code == "demo_service_failed"
    assert caught.value.details["last_lines"] == ["no Java"]


def test_silence_is_an_error(start: Start):
    """A service that never answers does not keep the demo waiting for ever."""
    with pytest.raises(ServiceFailedError):
        start("import signal; signal.pause()").wait_until_ready(0.0)


def test_stop_leaves_nothing_of_the_group(start: Start, settings: Settings):
    """Neither a child that ignores SIGTERM nor a grandchild survives."""
    pipe = settings.root / "pid"
    os.mkfifo(pipe)
    service = start(STUBBORN)
    grandchild = int(pipe.read_text())
    assert is_alive(service.pid)
    assert is_alive(grandchild)
    service.stop(0.0)
    assert not is_alive(service.pid)
    assert not is_alive(grandchild)


def test_stop_may_be_repeated(start: Start):
    """Stopping, or killing, what has stopped does nothing."""
    service = start(SERVER)
    service.stop()
    service.stop()
    service.kill()
    with pytest.raises(ServiceFailedError) as caught:
        service.check_alive()
    assert f"status {-signal.SIGTERM}" in caught.value.message


def test_a_taken_port_is_left_alone():
    """Another service on the usual port does not stop the demo."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken = other.getsockname()[1]
        assert choose_port(taken) != taken


def test_a_free_port_is_taken():
    """The usual port is used when it is free, so that `cbp status` finds the service."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        free = probe.getsockname()[1]
    assert choose_port(free) == free


def test_a_kill_ends_the_whole_group_and_the_log_goes_on(start: Start, settings: Settings):
    """A service that is started again writes behind the lines of the one that was killed."""
    pipe = settings.root / "pid"
    os.mkfifo(pipe)
    service = start(f"print('first', flush=True){STUBBORN}")
    grandchild = int(pipe.read_text())
    service.kill()
    assert not is_alive(service.pid)
    assert not is_alive(grandchild)
    with pytest.raises(ServiceFailedError) as caught:
        start("print('second')").wait_until_ready(60)
    assert caught.value.details["last_lines"] == ["first", "second"]
