"""One S3 service for the tests of a module, and an empty bucket for each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.controller.bucket_server import BucketServer
from tests.controller.ingest.folder.located import Located


@pytest.fixture(scope="module")
def service() -> Iterator[BucketServer]:
    with BucketServer() as made:
        yield made


@pytest.fixture
def server(service: BucketServer) -> BucketServer:
    return service.begin()


@pytest.fixture
def located(server: BucketServer, tmp_path: Path) -> Located:
    return Located(tmp_path, server)
