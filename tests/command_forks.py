"""The command `cbp` for scripts that call it often: a fork of one process that has it loaded.

    with CommandForks() as cbp:
        subprocess.run(["bash", "-c", f"{cbp.command} status"])

Each call is a process of its own, with the caller's folder, environment, input and outputs, and
ends with the command's status, as `cbp` does; what it saves is the half second of imports.
"""

from __future__ import annotations

import array
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, Self

__all__ = ["CommandForks"]

_CALL_BYTES_MAX = 1 << 20
_CALLER = """
import json, os, socket, sys
call = {"arguments": sys.argv[2:], "folder": os.getcwd(), "environment": dict(os.environ)}
with socket.socket(socket.AF_UNIX) as server:
    server.connect(sys.argv[1])
    socket.send_fds(server, [json.dumps(call).encode() + b"\\n"], [0, 1, 2])
    sys.exit(int(server.recv(16) or b"70"))
"""


class CommandForks:
    """A process that runs `cbp` for those who ask it, each in a fork.

    Attributes:
        command: What a script has in the place of `cbp`.
    """

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="cbp-forks-")
        path = str(Path(self._folder.name) / "socket")
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(path)
        self._listener.listen()
        self.command = shlex.join([sys.executable, "-I", "-S", "-c", _CALLER, path])

    def __enter__(self) -> Self:
        descriptor = self._listener.fileno()
        root = Path(__file__).resolve().parents[1]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.command_forks", str(descriptor)],
            pass_fds=[descriptor],
            env={**os.environ, "PYTHONPATH": str(root)},
            stdin=subprocess.DEVNULL,
        )
        self._listener.close()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.wait()
        self._folder.cleanup()


def _serve(descriptor: int) -> NoReturn:
    """Answer calls until killed; one after the other, as a script makes them."""
    import httpx  # noqa: F401

    import controller.cli.main  # noqa: F401

    with socket.socket(fileno=descriptor) as listener:
        while True:
            caller, _ = listener.accept()
            child = os.fork()
            if not child:
                listener.close()
                _answer(caller)
            caller.close()


def _answer(caller: socket.socket) -> NoReturn:
    """Run one command in a fork of this fork, and tell the caller its status."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    text, descriptors = _receive(caller)
    child = os.fork()
    if not child:
        caller.close()
        _run(json.loads(text), descriptors)
    _, status = os.waitpid(child, 0)
    caller.sendall(str(os.waitstatus_to_exitcode(status)).encode())
    os._exit(0)


def _receive(caller: socket.socket) -> tuple[bytes, list[int]]:
    text, rights, _, _ = caller.recvmsg(_CALL_BYTES_MAX, socket.CMSG_SPACE(3 * 4))
    descriptors = array.array("i")
    for _, _, data in rights:
        descriptors.frombytes(data)
    while not text.endswith(b"\n"):
        text += caller.recv(_CALL_BYTES_MAX)
    return text, list(descriptors)


def _run(call: dict[str, Any], descriptors: list[int]) -> NoReturn:
    status = 1
    try:
        for number, descriptor in enumerate(descriptors):
            os.dup2(descriptor, number)
            os.close(descriptor)
        os.chdir(call["folder"])
        os.environ.clear()
        os.environ.update(call["environment"])
        status = _status_of(call["arguments"])
        sys.stdout.flush()
        sys.stderr.flush()
    except BrokenPipeError:  # who read it, such as `head`, has had enough
        pass
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def _status_of(arguments: list[str]) -> int:
    from controller.cli import main

    try:
        main(arguments)
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no call leaves a zombie
    _serve(int(sys.argv[1]))
