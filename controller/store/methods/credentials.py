"""Store methods for tokens, sessions and sign-in codes; none of these rows has a secret."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Row, func, insert, or_, select
from sqlalchemy import delete as delete_from
from sqlalchemy import update as update_table

from cbp.errors import NotFoundError
from controller.store.access import AuditFilter, AuditRecord, CodeRecord, SessionRecord, TokenRecord
from controller.store.database.connections import Database, insert_new
from controller.store.methods.forgetting import ROWS_MAX
from controller.store.methods.listing_pages import between, page
from controller.store.records import Page
from controller.store.schema import rows
from controller.store.schema.tables import audit, sessions, sign_in_codes, tokens


class Credentials:
    """Store methods for tokens, sessions and sign-in codes; see `Store`."""

    _database: Database

    def add_token(self, token: TokenRecord) -> None:
        """Add a token; raises `AlreadyExistsError` if its name is taken."""
        with self._database.write(fenced=False) as connection:
            insert_new(connection, tokens, rows.row_of(token), kind="token", name=token.name)

    def tokens(self, *, cursor: str | None = None, limit: int = 100) -> Page[TokenRecord]:
        """List tokens, newest first."""
        return page(self._database, select(tokens), tokens.c.seq, _token_of, cursor, limit)

    def token(self, name: str) -> TokenRecord:
        """Return one token; raises `NotFoundError`."""
        return self._database.one(
            select(tokens).where(tokens.c.name == name), _token_of, "token", name
        )

    def find_token(self, sha256: str) -> TokenRecord | None:
        """Return the token that has this digest, now or before its last rotation."""
        query = select(tokens).where(or_(tokens.c.sha256 == sha256, tokens.c.old_sha256 == sha256))
        return self._database.row(query, _token_of)

    def replace_token(self, token: TokenRecord, *, instead_of: str) -> bool:
        """Replace a token by name, and end the sessions and codes that were made from it.

        Nothing changes, and the result is `False`, if the token was revoked, or if its digest is no
        longer `instead_of`: other instances change tokens, too. Raises `NotFoundError`.
        """
        mine = tokens.c.name == token.name
        same = (tokens.c.sha256 == instead_of, tokens.c.revoked_at.is_(None))
        with self._database.write(fenced=False) as connection:
            changed = connection.execute(
                update_table(tokens).where(mine, *same).values(rows.row_of(token))
            )
            if changed.rowcount:
                for table in (sessions, sign_in_codes):
                    connection.execute(delete_from(table).where(table.c.token == token.name))
            elif connection.execute(select(tokens.c.name).where(mine)).first() is None:
                raise NotFoundError(kind="token", name=token.name)
            return bool(changed.rowcount)

    def use_token(self, name: str, at: datetime) -> None:
        """Set when a token was last used."""
        with self._database.write(fenced=False) as connection:
            connection.execute(
                update_table(tokens).where(tokens.c.name == name).values(last_used_at=at)
            )

    def add_code(self, code: CodeRecord) -> None:
        """Add a sign-in code."""
        with self._database.write(fenced=False) as connection:
            connection.execute(insert(sign_in_codes), rows.row_of(code))

    def take_code(self, sha256: str) -> CodeRecord | None:
        """Remove a code and return it; `None` if there is none. Two callers never both get it."""
        # One statement: if two callers try, one of them removes the row.
        mine = delete_from(sign_in_codes).where(sign_in_codes.c.sha256 == sha256)
        taking = mine.returning(sign_in_codes)
        with self._database.write(fenced=False) as connection:
            row = connection.execute(taking).first()
        return None if row is None else CodeRecord(**row._mapping)

    def add_session(self, session: SessionRecord, *, most: int) -> None:
        """Add a session, and end the oldest ones beyond `most`."""
        with self._database.write(fenced=False) as connection:
            connection.execute(insert(sessions), rows.row_of(session))
            newest = select(sessions.c.seq).order_by(sessions.c.seq.desc())
            oldest = connection.execute(newest.offset(most).limit(1)).scalar()
            if oldest is not None:
                connection.execute(delete_from(sessions).where(sessions.c.seq <= oldest))

    def find_session(self, sha256: str) -> SessionRecord | None:
        """Return the session with this digest."""
        query = select(sessions).where(sessions.c.sha256 == sha256)
        return self._database.row(query, _session_of)

    def use_session(self, id_: str, at: datetime) -> None:
        """Set when a session was last used."""
        with self._database.write(fenced=False) as connection:
            connection.execute(
                update_table(sessions).where(sessions.c.id == id_).values(last_seen_at=at)
            )

    def sessions(self, *, cursor: str | None = None, limit: int = 100) -> Page[SessionRecord]:
        """List sessions, newest first."""
        return page(self._database, select(sessions), sessions.c.seq, _session_of, cursor, limit)

    def end_session(self, id_: str) -> bool:
        """Remove a session; return whether there was one."""
        with self._database.write(fenced=False) as connection:
            ended = connection.execute(delete_from(sessions).where(sessions.c.id == id_))
            return bool(ended.rowcount)

    def forget_access(self, now: datetime, *, before: datetime, seen_before: datetime) -> int:
        """Remove credentials that can no longer be used; return how many rows.

        Args:
            now: Codes and sessions that have expired by now are removed.
            before: Tokens that were revoked, or expired, before this time are removed.
            seen_before: Sessions that were last used before this time are removed.
        """
        code, session, token = sign_in_codes.c, sessions.c, tokens.c
        unused = or_(session.expires_at <= now, session.last_seen_at < seen_before)
        ended = or_(token.revoked_at < before, token.expires_at < before)
        gone = ((sign_in_codes, code.expires_at <= now), (sessions, unused), (tokens, ended))
        with self._database.write(fenced=False) as connection:
            removed = [connection.execute(delete_from(table).where(which)) for table, which in gone]
            return sum(one.rowcount for one in removed)


def _token_of(row: Row[Any]) -> TokenRecord:
    limited = None if row.dataflows is None else tuple(row.dataflows)
    return TokenRecord(**(rows.fields_of(TokenRecord, row) | {"dataflows": limited}))


def _session_of(row: Row[Any]) -> SessionRecord:
    return SessionRecord(**rows.fields_of(SessionRecord, row))


class AuditLog:
    """Store methods for entries of the audit log; see `Store`."""

    _database: Database

    def add_audit(self, entries: Sequence[AuditRecord]) -> None:
        """Append entries (>= 1), in order."""
        with self._database.write(fenced=False) as connection:
            connection.execute(insert(audit), [_audit_row(entry) for entry in entries])

    def audit(
        self, chosen: AuditFilter, *, cursor: str | None = None, limit: int = 100
    ) -> Page[AuditRecord]:
        """List entries, newest first."""
        query = select(audit).where(*between(audit.c.at, chosen.since, chosen.until))
        for name in ("actor", "action", "dataflow", "outcome", "error_code"):
            if (value := getattr(chosen, name)) is not None:
                query = query.where(audit.c[name] == value)
        return page(self._database, query, audit.c.seq, _audit_of, cursor, limit)

    def forget_audit(self, before: datetime, *, rows_max: int) -> int:
        """Remove entries before a time, and all but the newest `rows_max`; return how many.

        At most some thousand are removed at a time.
        """
        oldest = select(audit.c.seq, audit.c.at).order_by(audit.c.seq).limit(ROWS_MAX)
        with self._database.write(fenced=False) as connection:
            newest = connection.execute(select(func.max(audit.c.seq))).scalar() or 0
            seen = connection.execute(oldest).all()
            gone = [row.seq for row in seen if row.at < before or row.seq <= newest - rows_max]
            if gone:
                connection.execute(delete_from(audit).where(audit.c.seq.in_(gone)))
            return len(gone)


def _audit_row(entry: AuditRecord) -> dict[str, Any]:
    row = rows.row_of(entry)
    del row["number"]
    return row


def _audit_of(row: Row[Any]) -> AuditRecord:
    values = dict(row._mapping)
    return AuditRecord(number=values.pop("seq"), **values)
