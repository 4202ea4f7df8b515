"""An S3 service over HTTP, in this process: moto's. It counts what it is asked, and can be broken.

with BucketServer() as server:
    server.begin()                          an empty bucket, and nothing planned
    server.put("orders/a.jsonl", b"{}")
    server.store                            what the product reads it with: s3fs
    server.on_get("orders/a.jsonl", act)    `act` is called before the object is sent
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, Self
from urllib.parse import parse_qs

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

from controller.ingest.folder.object_store import S3Store

KEY, SECRET = "canary-key-id", "canary-secret-key"
_NUMBERS = itertools.count()
Wsgi = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


class BucketServer:
    """A service, and the bucket that the present test uses.

    Attributes:
        url: Its address.
        store: Reads it.
        bucket: The name of the bucket.
        lists: Number of pages of listings that it was asked for.
        gets: How often it was asked for each key.
        broken: The HTTP status and the error code of every answer; `None`: the real ones.
        said: The message of such an answer.
        denied: Keys that may not be read.
        elsewhere: Where every listing is sent to; `""`: nowhere.
        cuts: How often the body of each key is cut from now on.
    """

    def __init__(self) -> None:
        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        self._moto: Wsgi = DomainDispatcherApplication(create_backend_app)
        self._server = make_server("127.0.0.1", 0, self._app, threaded=True)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
        )
        self._thread.start()
        self.store = S3Store(self.url, KEY, SECRET)
        self._system: Any = self.store._system
        self.begin()

    def begin(self) -> Self:
        """Make another bucket, which is empty, and forget what was counted and planned."""
        self.bucket = f"bucket-{next(_NUMBERS)}"
        self.lists, self.gets = 0, Counter[str]()
        self.broken: tuple[str, str] | None = None
        self.said, self.denied = "planned", set[str]()
        self.cuts, self.elsewhere = Counter[str](), ""
        self._acts: dict[str, Callable[[], object]] = {}
        self._system.call_s3("create_bucket", Bucket=self.bucket)
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def location(self, prefix: str = "orders/") -> str:
        return f"s3://{self.bucket}/{prefix}"

    def put(self, key: str, data: bytes, **more: Any) -> None:
        self._system.call_s3("put_object", Bucket=self.bucket, Key=key, Body=data, **more)

    def delete(self, key: str) -> None:
        self._system.call_s3("delete_object", Bucket=self.bucket, Key=key)

    def keys(self) -> list[str]:
        answer = self._system.call_s3("list_objects_v2", Bucket=self.bucket)
        self.lists -= 1
        return [one["Key"] for one in answer.get("Contents", ())]

    def on_get(self, key: str, act: Callable[[], object]) -> None:
        """Call `act` once, before the next answer to a request for an object."""
        self._acts[key] = act

    def _app(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        path = environ["PATH_INFO"].encode("latin-1").decode()
        key = path.removeprefix(f"/{self.bucket}").removeprefix("/")
        if environ["REQUEST_METHOD"] != "GET":
            return self._moto(environ, start)
        if "list-type" in parse_qs(environ["QUERY_STRING"]):
            self.lists += 1
            if self.elsewhere:
                start("307 Temporary Redirect", [("Location", self.elsewhere)])
                return []
        elif key:
            self.gets[key] += 1
            if act := self._acts.pop(key, None):
                act()
        if told := ("403 Forbidden", "AccessDenied") if key in self.denied else self.broken:
            return self._error(*told, start)
        body = self._moto(environ, start)
        if key and self.cuts[key] > 0:
            self.cuts[key] -= 1
            return [b"".join(body)[:-1]]
        return body

    def _error(self, status: str, code: str, start: Callable[..., Any]) -> Iterable[bytes]:
        body = f"<Error><Code>{code}</Code><Message>{self.said}</Message></Error>".encode()
        start(status, [("Content-Type", "application/xml"), ("Content-Length", str(len(body)))])
        return [body]
