"""A mail server for tests: takes messages over real sockets and keeps them."""

from __future__ import annotations

import socketserver
import threading
from email import message_from_bytes
from email.message import Message

__all__ = ["SmtpSink"]


class SmtpSink:
    """Listens on a free port of the loopback address; knows no TLS and no password.

    Attributes:
        messages: What was received.
    """

    def __init__(self) -> None:
        self.messages: list[Message] = []
        sink = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                self.wfile.write(b"220 sink\r\n")
                while line := self.rfile.readline():
                    if line.upper().startswith(b"DATA"):
                        self.wfile.write(b"354 go on\r\n")
                        text = b""
                        while (part := self.rfile.readline()) != b".\r\n":
                            text += part
                        sink.messages.append(message_from_bytes(text))
                    if line.upper().startswith(b"QUIT"):
                        self.wfile.write(b"221 bye\r\n")
                        return
                    self.wfile.write(b"250 ok\r\n")

        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.02,), daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
