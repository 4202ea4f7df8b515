"""Makes the `AuditRecord` of a request from the request and the status of its answer.

An answer to a request that changed something leaves after its entry is stored, so that a reader of
the answer finds the entry. Refused requests (401, 403, 429) are only counted.
"""

from urllib.parse import parse_qs

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.types import Scope as AsgiScope

from cbp.errors.masks import hide_secrets
from cbp.errors.message_limits import shortened
from controller.access.audit import Audit
from controller.access.secret_text import mask_tokens
from controller.api.answers.json_values import json_value
from controller.api.answers.problems import ERROR_CODE
from controller.api.security.exchange import Exchange
from controller.store.access import AuditRecord, Outcome

USER_HEADER = "X-CBP-User"
"""Header with the name of the client's user. It is shown, but no decision depends on it."""

_REFUSED = frozenset({401, 403, 429})
_USER_LENGTH, _REASON_LENGTH = 100, 1_000
_YES = frozenset({"1", "true", "t", "yes", "y", "on"})


async def audit_answer(audit: Audit, scope: AsgiScope, exchange: Exchange, status: int) -> None:
    """Add a request to the audit log before its answer leaves.

    A refused request is counted. Another request becomes an entry if its action changes something,
    even if it failed. Reads and dry runs are left out.
    """
    if status in _REFUSED:
        audit.count_refusal(_entry(audit, scope, exchange, status))
    elif exchange.changes and not _is_dry_run(scope):
        await run_in_threadpool(audit.record, _entry(audit, scope, exchange, status))


def _entry(audit: Audit, scope: AsgiScope, exchange: Exchange, status: int) -> AuditRecord:
    caller = exchange.caller
    path = {name: str(value) for name, value in scope.get("path_params", {}).items()}
    dataflow = path.pop("name", "")
    return AuditRecord(
        at=audit.now(),
        actor="" if caller is None else caller.actor,
        session="" if caller is None else caller.session,
        scope="" if caller is None else caller.scope.value,
        user=_user(scope),
        action=exchange.action,
        outcome=_outcome(status),
        status=status,
        error_code=scope.get(ERROR_CODE, ""),
        dataflow=_text(exchange.dataflow or dataflow),
        target={name: _text(value) for name, value in {**path, **exchange.target}.items()},
        reason=_text(exchange.reason or _parameter(scope, "reason"), _REASON_LENGTH),
        request=exchange.id,
        address=(scope.get("client") or ("", 0))[0],
    )


def _outcome(status: int) -> Outcome:
    if status in _REFUSED:
        return "refused"
    return "done" if status < 400 else "failed"


def _user(scope: AsgiScope) -> str:
    said = _parameter(scope, "by") or Headers(scope=scope).get(USER_HEADER, "")
    return _text(said)


def _text(value: str, length: int = _USER_LENGTH) -> str:
    return str(json_value(shortened(mask_tokens(hide_secrets(value)), length)))


def _is_dry_run(scope: AsgiScope) -> bool:
    return _parameter(scope, "dry_run").lower() in _YES


def _parameter(scope: AsgiScope, name: str) -> str:
    query: str = scope["query_string"].decode("latin-1")
    given = parse_qs(query, errors="replace")
    return given.get(name, [""])[-1]
