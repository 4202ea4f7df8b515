"""The service in this process, on a port of its own, for tests that need real sockets."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI

from controller.app import create_app
from controller.client.service_client import ServiceClient
from controller.server.service_process import free_port
from controller.settings import Settings, load_settings
from tests.controller.small_app import DOCUMENT, TOKEN
from tests.controller.world import until

WAIT_SECONDS = 120.0


@contextmanager
def served(root: Path, **more: Any) -> Iterator[tuple[Settings, FastAPI, uvicorn.Server]]:
    """Run the service with the dataflow of `small_app`; it is stopped as by a signal."""
    values: dict[str, Any] = {
        "port": free_port(),
        "engine": "local",
        "reader_processes": False,
        "worker_processes": False,
        "token": TOKEN,
        "settle_seconds": 0,
        "scan_seconds": 0.1,
        "tick_seconds": 0.1,
        "drain_seconds": 20,
    }
    settings = load_settings(root=root, **(values | more))
    app = create_app(settings)
    server = uvicorn.Server(
        uvicorn.Config(app, port=settings.port, log_config=None, timeout_graceful_shutdown=20)
    )
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        until(lambda: server.started)
        with ServiceClient(settings) as client:
            document = json.dumps(DOCUMENT).encode()
            client.post("dataflows", content=document, content_type="application/json")
        yield settings, app, server
    finally:
        app.state.begin_stop()
        server.should_exit = True
        thread.join(WAIT_SECONDS)
        assert not thread.is_alive()
