"""The caller of a request, as its credential shows it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from controller.access.scopes import Scope

TOKEN_FILE = "token-file"
"""The actor that has the token of the token file, or of `CBP_TOKEN`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """The caller of a request.

    Attributes:
        token: The name of its token; `""` means the token file.
        mark: Beginning of the token's digest.
        subject: The subject that the identity provider names, if it sent such a token.
        session: The id of its session; `""` if it sent the token itself.
        dataflows: The only dataflows that it may touch; `None` means all.
        expires_at: When its credential ends; `None` means never.
    """

    scope: Scope
    token: str = ""
    mark: str = ""
    subject: str = ""
    session: str = ""
    dataflows: tuple[str, ...] | None = None
    expires_at: datetime | None = None

    def may_touch(self, dataflow: str | None) -> bool:
        """Return whether its token allows a dataflow; `None` means several dataflows."""
        return self.dataflows is None or dataflow in self.dataflows

    @property
    def actor(self) -> str:
        """Owner of the credential, for records: `token-file`, `token:NAME` or `oidc:SUBJECT`."""
        if self.subject:
            return f"oidc:{self.subject}"
        return f"token:{self.token}" if self.token else TOKEN_FILE
