"""The process of the service: what it does once, before its first request."""

from __future__ import annotations

import asyncio
import gc

import uvicorn

from controller.server.process import _Server
from controller.server.service_process import free_port


def test_collections_of_garbage_leave_out_what_was_imported() -> None:
    """They stop all threads; what is there when the port opens is not looked at any more."""

    async def frozen_once_it_listens() -> int:
        config = uvicorn.Config(lambda: None, port=free_port(), lifespan="off", log_config=None)
        config.load()
        server = _Server(config, None)
        server.lifespan = config.lifespan_class(config)
        await server.startup()
        frozen = gc.get_freeze_count()
        await server.shutdown()
        return frozen

    imported, before = [list[int]() for _ in range(10_000)], gc.get_freeze_count()
    assert asyncio.run(frozen_once_it_listens()) >= before + len(imported)
