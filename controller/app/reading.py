"""The parts of a service for a process that only answers reads.

Such a process reads the same store, tables and translators as the service, but has no thread of its
own, no engine that executes runs, and no lease. It refuses all durable effects, except that it
notes the use of a token or a session.
"""

from __future__ import annotations

from collections.abc import Callable

from cbp.clock import MACHINE
from cbp.engine.direct import LocalEngine
from cbp.engine.storage.files import files_for
from cbp.errors import LeaseLostError
from cbp.model.schedule.lease import Role, Standing
from controller.access.access import Access
from controller.api import create_api
from controller.api.requests.present_state import Answers, Part, ToldState
from controller.app.construction import drop_folder_for, environment_for
from controller.clock import SteadyClock
from controller.loop import Controller, Fence, Parts
from controller.loop.leadership.lease_keeper import boot_seconds
from controller.loop.runs.threads import Threads
from controller.settings import Settings
from controller.store.base import open_beside

_WHY = "this process only reads"


class ReadingService:
    """The parts, connected."""

    def __init__(self, settings: Settings, ask: Callable[[Part], bytes]) -> None:
        answers = Answers(ask)
        store = open_beside(settings.database_url)
        faults = Fence(check=_refuse)
        files = files_for(settings.tables, faults=faults, settings=settings.spark_conf)
        clock = SteadyClock(MACHINE.now, boot_seconds)
        drop_folder = drop_folder_for(
            settings,
            store=store,
            files=files,
            clock=clock,
            readers=None,
            on_accept=lambda: None,
            on_close=lambda _dataflow, _source, _key: None,
            faults=faults,
        )
        environment = environment_for(
            settings,
            store=store,
            # Tables are read alike by every engine, and Spark takes seconds to start.
            engine=LocalEngine(cache=str(settings.cache), faults=faults),
            files=files,
            clock=clock,
            arrivals=drop_folder,
            executor=Threads("run"),
            framers=Threads("frame"),
            faults=faults,
        )
        self.access = Access(settings, store)
        self.api = create_api(
            controller=Controller(Parts(environment)),
            store=store,
            drop_folder=drop_folder,
            settings=settings,
            access=self.access,
            present=lambda: ToldState(answers),
            standing=lambda: Standing(Role.FOLLOWS, 0, ""),
        )
        store.ping()


def _refuse() -> None:
    raise LeaseLostError(None, _WHY)
