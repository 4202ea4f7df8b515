"""Refusals of callers, and of what they want to make."""

from collections.abc import Sequence
from typing import Literal

from cbp.errors import CbpError, OperatingError
from controller.access.scopes import Scope

Reason = Literal["missing", "unknown", "expired", "revoked", "session_ended", "provider"]

_WHY: dict[Reason, str] = {
    "missing": "the request has no credential",
    "unknown": "the service does not know this token",
    "expired": "this token has expired; an admin makes a new secret with: cbp tokens rotate NAME",
    "revoked": "this token was revoked",
    "provider": "this token of the identity provider is not accepted",
    "session_ended": "this session has ended; sign in again, `cbp link` prints a link",
}


class UnauthenticatedError(CbpError):
    """No valid token or session came with the request."""

    code = "unauthenticated"

    def __init__(self, reason: Reason = "missing", why: str = "") -> None:
        super().__init__(
            f"{_WHY[reason]}{': ' if why else ''}{why}. A bearer token is required: send "
            "'Authorization: Bearer <token>'; `cbp serve` says which file holds the admin's",
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
            "of this service work",
            issuer=issuer,
        )


class OidcPackagesMissingError(OperatingError):
    """Tokens of an identity provider need packages that are not installed."""

    code = "oidc_packages_missing"
    retryable = False

    def __init__(self, package: str) -> None:
        super().__init__(
            f"CBP_OIDC_ISSUER needs the package {package}, which is not installed; install "
            "`cbp[oidc]`, or unset it",
            package=package,
        )


class ScopeTooLowError(CbpError):
    """The caller is known, and may not do this."""

    code = "scope_too_low"

    def __init__(self, needed: Scope, scope: Scope, action: str) -> None:
        super().__init__(
            f"{action} needs the scope {needed.value!r}, and this caller has {scope.value!r}; "
            f"use a token of scope {needed.value!r} (cbp tokens new NAME --scope {needed.value})",
            needed=needed.value,
            scope=scope.value,
            action=action,
        )


class DataflowNotGrantedError(CbpError):
    """The caller's token is limited to some dataflows, and this is about others."""

    code = "dataflow_not_granted"

    def __init__(self, action: str, granted: Sequence[str]) -> None:
        super().__init__(
            f"this token is limited to the dataflows {', '.join(granted)}: {action} is about "
            "another one, or about several; use a token without that limit",
            action=action,
            dataflows=list(granted),
        )


class CodeRefusedError(CbpError):
    """A sign-in code is unknown: it was used, has expired, or was never made."""

    code = "code_refused"

    def __init__(self) -> None:
        super().__init__(
            "this sign-in code was used before, has expired, or never existed; `cbp link` prints "
            "a new link"
        )


class TooManyAttemptsError(CbpError):
    """Too many wrong codes or tokens came from one address."""

    code = "too_many_attempts"
    retryable = True

    def __init__(self, seconds: int) -> None:
        super().__init__(
            f"too many wrong codes or tokens came from this address; try again in {seconds} s",
            retry_after_seconds=seconds,
        )


class TooManyRequestsError(CbpError):
    """A caller has sent more requests than it may in this time."""

    code = "too_many_requests"
    retryable = True

    def __init__(self, actor: str, per_second: int) -> None:
        super().__init__(
            f"{actor} has sent more than {per_second} requests a second for some time; try again "
            "in a second (CBP_REQUESTS_PER_SECOND_MAX)",
            retry_after_seconds=1,
        )


class TokenNeededError(CbpError):
    """A sign-in code is made from a token that is not limited to dataflows, by nothing else."""

    code = "token_needed"

    def __init__(self, why: str) -> None:
        super().__init__(
            f"{why}; use a token that is not limited to dataflows, such as the one in the token "
            "file, with: cbp link"
        )


class TokensTooManyError(CbpError):
    """The limit of named tokens is reached."""

    code = "tokens_too_many"

    def __init__(self, most: int) -> None:
        super().__init__(
            f"there are {most} tokens, which is the limit; revoked and expired ones are removed "
            "after CBP_KEEP_AUDIT_DAYS, and `cbp tokens rotate` gives one a new secret",
            most=most,
        )


class TokenEndedError(CbpError):
    """A revoked token stays revoked."""

    code = "token_ended"

    def __init__(self, name: str) -> None:
        super().__init__(
            f"the token {name!r} is revoked for good; make another one with: cbp tokens new",
            name=name,
        )
