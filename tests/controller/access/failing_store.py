"""A store whose database does not answer."""

from __future__ import annotations

from typing import Any, NoReturn

from cbp.errors import OperatingError
from tests.controller.api.fake_access import FakeAccessStore

__all__ = ["StoreThatFails"]


class StoreThatFails(FakeAccessStore):
    """Fails at every look-up."""

    def find_token(self, sha256: str) -> NoReturn:
        self._fail()

    def find_session(self, sha256: str) -> NoReturn:
        self._fail()

    def _fail(self, *_: Any) -> NoReturn:
        message = "the database does not answer"
        raise OperatingError(message)
