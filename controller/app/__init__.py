"""The service, constructed and connected: the only package that constructs all parts.

    settings -> store -> files -> engine -> controller -> drop folder -> scheduler -> API

- `asgi`: the service as an ASGI application
- `service`: connects the parts, starts and stops them, and follows the lease
- `leader_duties`: the periodic work of the leader, such as listing and cleaning drop folders
- `construction`: the engine, the drop folder and the controller's environment, from settings
- `logs`: where the logs of the process go, and in which form
"""

from controller.app.asgi import api_of, create_app
from controller.app.construction import engine_for
from controller.app.logs import configure_logging
from controller.app.service import Service

__all__ = ["Service", "api_of", "configure_logging", "create_app", "engine_for"]
