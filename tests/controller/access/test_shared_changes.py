"""The count of ended tokens and sessions that processes share."""

from __future__ import annotations

import os
import subprocess
import sys

from controller.access.scopes import Scope
from controller.access.shared_changes import SharedChanges
from tests.controller.access.service_access import AccessOfTest

_COUNT = "from controller.access.shared_changes import SharedChanges as S; print(S({}).count)"


def test_another_process_sees_the_count_at_once() -> None:
    """The memory is shared, and not copied when the other process begins."""
    mine, descriptor = SharedChanges.make()
    # In a file, a write would end the process once the disk is full.
    assert os.readlink(f"/proc/self/fd/{descriptor}").startswith("/memfd:")
    other = SharedChanges(os.dup(descriptor))
    assert (mine.count, other.count) == (0, 0)
    for number in range(1, 300):
        mine.note()
        assert other.count == number
    command = [sys.executable, "-c", _COUNT.format(descriptor)]
    said = subprocess.run(command, pass_fds=[descriptor], capture_output=True, check=True)
    assert int(said.stdout) == mine.count
    os.close(descriptor)


def test_whatever_ends_a_credential_is_counted_before_it_returns(access: AccessOfTest) -> None:
    """A process that remembers a caller forgets it before the end is answered."""
    changes, descriptor = SharedChanges.make()
    os.close(descriptor)
    access.authentication.on_forget = changes.note
    access.tokens.create("ci", Scope.VIEWER, by="admin", life=None)
    assert changes.count == 0
    access.tokens.revoke("ci")
    assert changes.count == 1
    _, session = access.sessions.begin(access.authentication.admin, address="", agent="")
    access.sessions.end(session.id)
    assert changes.count == 2
