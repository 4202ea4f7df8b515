"""The connection of a command, against a server of sockets."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread

from pydantic import SecretStr

from controller.cli.session import Session
from controller.settings import load_settings


@contextmanager
def _serving(port: int = 0) -> Iterator[tuple[int, list[int], Event]]:
    """Give a server's port, the client's port of each request, and what a closed one sets."""
    clients, closed = list[int](), Event()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"  # keeps connections

        def do_GET(self) -> None:
            clients.append(self.client_address[1])
            if len(clients) == 2:
                self.close_connection = True  # after the answer, which does not say so
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    class Server(ThreadingHTTPServer):
        def shutdown_request(self, request: object) -> None:
            super().shutdown_request(request)  # type: ignore[arg-type]
            closed.set()

    with Server(("127.0.0.1", port), Handler) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server.server_port, clients, closed
        finally:
            server.shutdown()
            thread.join()


def test_requests_of_a_command_share_a_connection_until_the_service_closes_it(
    tmp_path: Path,
) -> None:
    """The next request opens another one, so a command may wait for long between two."""
    with _serving() as (port, clients, closed):
        settings = load_settings(root=tmp_path, port=port, token=SecretStr("t"))
        with closing(Session(settings)) as session:
            for _ in range(2):
                session.rest.get("leader")
            assert closed.wait(60)
            session.rest.get("leader")
    assert clients[0] == clients[1] != clients[2]
