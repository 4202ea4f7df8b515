"""Refusals of callers, and of tokens and links that they want to create."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from cbp.errors import CbpError, OperatingError
from controller.access.scopes import Scope

Reason = Literal["missing", "unknown", "expired", "revoked", "session_ended", "provider"]

_WHY: dict[Reason, str] = {
    "missing": "the request has no credential",
    "unknown": "the service does not know this token",
    "expired": "this token has expired; an admin can renew it with: cbp tokens rotate NAME",
    "revoked": "this token was revoked",
    "provider": "this token of the identity provider is not accepted",
    "session_ended": "this session has ended; sign in again with a link from `cbp link`",
}


class UnauthenticatedError(CbpError):
    """The request had no valid token or session."""

    code = "unauthenticated"

    def __init__(self, reason: Reason = "missing", why: str = "") -> None:
        super().__init__(
            f"{_WHY[reason]}{': ' if why else ''}{why}. Send a bearer token: 'Authorization: "
            "Bearer <token>'. The admin's token is in the token file; `cbp serve` prints its path",
            reason=reason,
        )


class IdentityProviderError(OperatingError):
    """The keys of the identity provider cannot be read."""

    code = "oidc_unavailable"

    def __init__(
        self, issuer: str, why: str = "it does not answer, or its answer cannot be used"
    ) -> None:
        super().__init__(
            f"the keys of {issuer} cannot be read ({why}), so its tokens cannot be checked; tokens "
            "that this service created still work",
            issuer=issuer,
        )


class OidcPackagesMissingError(OperatingError):
    """Tokens of an identity provider need packages that are not installed."""

    code = "oidc_packages_missing"
    retryable = False

    def __init__(self, package: str) -> None:
        super().__init__(
            f"CBP_OIDC_ISSUER needs the package {package}, which is not installed; install "
            "`cbp[oidc]`, or unset CBP_OIDC_ISSUER",
            package=package,
        )


class ScopeTooLowError(CbpError):
    """The caller is known, but its scope does not allow this."""

    code = "scope_too_low"

    def __init__(self, needed: Scope, scope: Scope, action: str) -> None:
        super().__init__(
            f"{action} needs the scope {needed.value!r}, but this caller has only "
            f"{scope.value!r}; use a token with scope {needed.value!r} (cbp tokens new NAME "
            f"--scope {needed.value})",
            needed=needed.value,
            scope=scope.value,
            action=action,
        )


class DataflowNotGrantedError(CbpError):
    """The caller's token is limited to some dataflows, and the request concerns others."""

    code = "dataflow_not_granted"

    def __init__(self, action: str, granted: Sequence[str]) -> None:
        super().__init__(
            f"this token is limited to these dataflows: {', '.join(granted)}. But {action} needs "
            "access to another dataflow, or to all; use a token without this limit",
            action=action,
            dataflows=list(granted),
        )


class CodeRefusedError(CbpError):
    """A sign-in code is unknown: it was used, has expired, or was never made."""

    code = "code_refused"

    def __init__(self) -> None:
        super().__init__(
            "this sign-in code was already used, has expired, or never existed; get a new link "
            "with `cbp link`"
        )


class TooManyAttemptsError(CbpError):
    """One address sent too many wrong codes or tokens."""

    code = "too_many_attempts"
    retryable = True

    def __init__(self, seconds: int) -> None:
        super().__init__(
            f"too many wrong codes or tokens came from this address; try again in {seconds} s",
            retry_after_seconds=seconds,
        )


class TooManyRequestsError(CbpError):
    """A caller has exceeded its rate of requests."""

    code = "too_many_requests"
    retryable = True

    def __init__(self, actor: str, per_second: int) -> None:
        super().__init__(
            f"{actor} has sent more than {per_second} requests a second for some time; try again "
            "in a second, or raise CBP_REQUESTS_PER_SECOND_MAX",
            retry_after_seconds=1,
        )


class TokenNeededError(CbpError):
    """A sign-in code can be made only from a token that is not limited to dataflows."""

    code = "token_needed"

    def __init__(self, why: str) -> None:
        super().__init__(
            f"{why}. Call `cbp link` with a token that is not limited to dataflows, such as the "
            "one in the token file"
        )


class TokensTooManyError(CbpError):
    """The limit of named tokens is reached."""

    code = "tokens_too_many"

    def __init__(self, most: int) -> None:
        super().__init__(
            f"there are {most} tokens, which is the limit. Revoked and expired tokens are removed "
            "after CBP_KEEP_AUDIT_DAYS; `cbp tokens rotate` gives an existing token a new secret",
            most=most,
        )


class TokenEndedError(CbpError):
    """A revoked token stays revoked."""

    code = "token_ended"

    def __init__(self, name: str) -> None:
        super().__init__(
            f"the token {name!r} was revoked permanently; create another token with: cbp tokens "
            "new",
            name=name,
        )
