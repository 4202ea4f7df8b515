"""A small server for tests, with TLS or without; answers every GET alike, or with its path."""

from __future__ import annotations

import json
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

__all__ = ["HttpsServer"]


class HttpsServer:
    """Listens on a free port of the loopback address; a context manager.

    Attributes:
        body, status: The answer; `None`: a JSON object with the path.
        answers: Path -> JSON values that are answered instead.
        paths: What was asked for, in order.
    """

    def __init__(
        self,
        certificate: Path | None = None,
        key: Path | None = None,
        *,
        body: bytes | None = None,
        status: int = 200,
    ) -> None:
        self.body, self.status, self.paths = body, status, list[str]()
        self.answers: dict[str, Any] = {}
        owner = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                owner.paths.append(self.path)
                value = owner.answers.get(self.path, {"path": self.path})
                body = json.dumps(value).encode() if owner.body is None else owner.body
                self.send_response(owner.status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                """Print nothing."""

        class Server(ThreadingHTTPServer):
            def handle_error(self, request: Any, client_address: Any) -> None:
                """Say nothing of clients that go away."""

        self._server = Server(("127.0.0.1", 0), Handler)
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate, key)
            self._server.socket = context.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.05,), daemon=True
        )

    def __enter__(self) -> HttpsServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
