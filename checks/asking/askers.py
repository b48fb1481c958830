"""Askers, and the session that each most likely needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from threading import Lock
from typing import TypeVar

from checks.asking import run
from checks.asking.by_rows import Renumbered
from checks.asking.session import NEW_SIGNATURE, LiveSession, SnapshotState, new_generation, state_statement
from checks.engine.rules.clauses import uncounted
from checks.errors import PolicyMoved, QueryTooSlow
from facts.numbering import latest_signature
from policy.active import Caller, caller_of_hash, versions
from policy.errors import AuthzError, KeyRefused, NotFound, Unavailable
from policy.ground.clock import timeline
from policy.moments import Moment
from policy.scopes import Scope

T = TypeVar("T")

_MOST = 10_000
_TRIES = 10  # attempts while the policy or the signatures turn out to have changed


@dataclass(frozen=True, slots=True)
class Trusted:
    """An internal asker, which needs no key: a command, or the admin."""

    environment_id: int


Asker = Caller | Trusted


def confirmed(asker: Asker) -> SnapshotState:
    """Return the current state. Raise `KeyRefused` for a key that is invalid or belongs to another environment now."""
    statement = state_statement(asker.environment_id, isinstance(asker, Caller), run.dialect())
    with uncounted():  # may be called during planning
        row = run.glance(statement.sql, asker.key_hash) if isinstance(asker, Caller) else None
        rows = [row] if row is not None else run.execute(statement, given_by(asker))
        if not rows:
            raise nobody(asker)
    return SnapshotState(*rows[0])


def given_by(asker: Asker) -> dict[str, object]:
    """Return the asker's slots for statements."""
    return {"key": asker.key_hash} if isinstance(asker, Caller) else {}


def nobody(asker: Asker) -> AuthzError:
    """Return the error for an asker that the database does not know."""
    if isinstance(asker, Trusted):
        return NotFound("the environment no longer exists")
    try:
        caller_of_hash(asker.key_hash, Scope.READ)
    except KeyRefused as refusal:  # tells a bad key from a missing scope
        return refusal
    return KeyRefused()  # it belongs to another environment now


def session_now(asker: Asker) -> LiveSession:
    """Return a session by the policy that is active now."""
    return LiveSession(asker.environment_id, confirmed(asker).version, isinstance(asker, Caller))


def session_at(asker: Asker, moment: Moment) -> LiveSession:
    """Return a session by the policy of a moment."""
    generation = likely_session(asker).generation
    if moment.signatures is None:  # a moment from a page token lacks them
        moment = replace(moment, signatures=latest_signature(asker.environment_id, moment.revision))
    return LiveSession(asker.environment_id, moment.version, isinstance(asker, Caller), generation, moment)


def settled(asker: Asker, moment: Moment | None, attempt: Callable[[LiveSession], tuple[T, int | None]]) -> T:
    """Call `attempt` with sessions until one has the active policy, and return its result.

    `attempt` returns its result and the policy version that the database had meanwhile, or `NEW_SIGNATURE`. If that is
    not the session's, it is called again with the next session. The same goes for an error that it raises.
    """
    session = likely_session(asker) if moment is None else session_at(asker, moment)
    for _ in range(_TRIES):
        version: int | None
        try:
            result, version = attempt(session)
        except (KeyRefused, QueryTooSlow, Unavailable):
            raise  # independent of the policy
        except AuthzError:
            if moment is not None:
                raise
            version = confirmed(asker).version
            if version == session.version:
                raise
        except Renumbered:
            version = NEW_SIGNATURE
        else:
            if version == session.version:
                return result
        session = session_after(session, version)
    raise PolicyMoved


# ---- Sessions last seen active: hints, confirmed by every statement ----------------------------------------------

_sessions: dict[tuple[int, bool], LiveSession] = {}
_moving = Lock()
_floor = 0  # the oldest generation that a cached session may have


def _forget() -> None:
    """Start new generations, which find none of the statements compiled before."""
    global _floor
    with _moving:
        _sessions.clear()
        _floor = new_generation()


timeline.forgets(_forget)


def likely_session(asker: Asker) -> LiveSession:
    """Return the session of the policy that was last seen active."""
    found = _sessions.get((asker.environment_id, isinstance(asker, Caller)))
    return _remember(session_now(asker)) if found is None else found


def session_after(session: LiveSession, current: int | None) -> LiveSession:
    """Return the next session to use after a statement found another version or new signatures."""
    with _moving:
        known = _sessions.get((session.environment_id, session.needs_key), session)
        if session.moment is not None:
            return replace(session, generation=_generation_after(known, session))
        if current != NEW_SIGNATURE:
            generation = max(known.generation, session.generation)
            if generation < _floor:  # the session predates a reset
                generation = new_generation()
            return _remember(LiveSession(session.environment_id, current, session.needs_key, generation))
        if (known.version, known.generation) != (session.version, session.generation):
            return known  # another thread already refreshed the session; all share what is compiled for it
        return _remember(LiveSession(session.environment_id, session.version, session.needs_key))


def _generation_after(known: LiveSession, session: LiveSession) -> int:
    """Return a generation that knows the current signatures."""
    if known.generation != session.generation:
        return known.generation
    return _remember(LiveSession(known.environment_id, known.version, known.needs_key)).generation


def _remember(session: LiveSession) -> LiveSession:
    if len(_sessions) > _MOST:
        _sessions.clear()
    if session.version is not None:
        versions.note(session.environment_id, session.version)
    if session.generation >= _floor:
        _sessions[session.environment_id, session.needs_key] = session
    return session
