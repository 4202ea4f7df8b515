"""The access side of a service, for tests of its parts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.controller.access.service_access import AccessOfTest


@pytest.fixture
def access(tmp_path: Path) -> AccessOfTest:
    return AccessOfTest(tmp_path)
