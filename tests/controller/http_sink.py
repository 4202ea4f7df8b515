"""A receiver for tests: keeps what is posted to it over a real socket; tests set its answers."""

from __future__ import annotations

import gzip
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

__all__ = ["HttpSink"]


class HttpSink:
    """Listens on a free port of the loopback address.

    Attributes:
        url: Its address.
        status: With which the next requests are answered; 302 leads to `/elsewhere`.
        contents: What was posted, in order, without its compression.
        paths: The paths of all requests.
        headers: The headers of what was posted.
        authorizations: The headers Authorization of what was posted; `None`: it had none.
    """

    def __init__(self) -> None:
        self.status = 200
        self.contents, self.paths = list[bytes](), list[str]()
        self.authorizations: list[str | None] = []
        self.headers = list[dict[str, str]]()
        sink = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                content = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    content = gzip.decompress(content)
                sink.contents.append(content)
                sink.paths.append(self.path)
                sink.headers.append(dict(self.headers))
                sink.authorizations.append(self.headers.get("Authorization"))
                self.send_response(sink.status)
                if sink.status == 302:
                    self.send_header("Location", "/elsewhere")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def do_GET(self) -> None:
                sink.paths.append(self.path)
                self.send_response(200)
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                """Print nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.02,), daemon=True
        )
        self._thread.start()

    @property
    def bodies(self) -> list[Any]:
        """What was posted, as JSON values."""
        return [json.loads(content) for content in self.contents]

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
