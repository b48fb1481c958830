"""Copy an environment to a follower: what the main service sends, and how the follower stores it.

A follower first gets a snapshot, all facts as of a revision, in pages. Then it gets each later revision, from the
change feed, with what the public feed leaves out: the revision's row, policy texts, and the hashes of API keys. The
position is stored in the transaction of the changes, so that a follower that was killed continues where it was.

A main service that was restored from a backup may have other changes under the same numbers. So each answer begins with
the row of the revision after which it continues, and the follower compares it with its own. It also compares how many
facts each revision changed. If anything differs, it discards its copy and gets a snapshot.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from hashlib import sha256
from typing import Any

import orjson

from authz_project.models import SCOPE_COLUMNS, ApiKey
from facts import table
from facts.models import PAST, STORED
from facts.numbering import outdate_statements, signature_numbers
from facts.store import Deletes, Inserts, Work
from facts.table import ChangeCounts, changed, execute, fact_table, fetch
from facts.wire import batch_from_json, exact_pattern
from policy.core.clock import new_moment
from policy.core.journal import COLUMNS, MOVED, WriterTurn, changing
from policy.errors import AuthzError
from policy.models import Environment, PolicyVersion, default_environment

FORMAT = 2  # of the answers; a follower refuses another one

Sent = dict[str, Any]
RevisionRow = list[Any]  # the row of a revision: number, time, author, request id, kind, inserted, deleted

# ---- what both sides read ------------------------------------------------------------------------------------------

ROW = "number, at, author, request_id, kind, inserted, deleted"
_KEY_FIELDS = (
    "id", "label", "prefix", "hash", *SCOPE_COLUMNS.values(), "created_by", "expires_at", "revoked_at",
)  # fmt: skip
VERSION_FIELDS = (
    "number", "source", "filename", "digest", "created_at", "author", "note", "tests", "failed_tests", "rules",
    "exercised_rules",
)  # fmt: skip


def made_at(environment_id: int, number: int) -> RevisionRow | None:
    """Return the row of a revision; None if there is none."""
    rows = fetch(
        f"SELECT {ROW} FROM authz_revision WHERE environment_id = %s AND number = %s", (environment_id, number)
    )
    return list(rows[0]) if rows else None


def keys_of(environment_id: int) -> bytes:
    """Return the environment's keys as JSON, always in the same form."""
    return orjson.dumps(
        list(ApiKey.objects.filter(environment=environment_id).order_by("pk").values_list(*_KEY_FIELDS))
    )


def digest_of(keys: bytes) -> str:
    return sha256(keys).hexdigest()


# ---- what a follower stores ----------------------------------------------------------------------------------------


class Differs(Exception):
    """What the main service sent does not continue the copy."""


@dataclass(frozen=True, slots=True)
class CopyState:
    """Which service an environment copies, and how far, as stored with it."""

    url: str
    position: int | str | None = None  # the `next` of the last answer; None: a snapshot is to begin
    is_complete: bool = False  # whether the facts are those of a revision; the position is then its number
    is_refused: bool = False  # whether the main service refused the follower's key
    current_at: float = 0.0  # when it was last known to be current, by this machine's clock: seconds since 1970

    @property
    def text(self) -> str:
        return orjson.dumps(asdict(self)).decode()


def copy_of(url: str) -> Environment:
    """Return the environment that follows `url`: the one there is, or an empty one from now on."""
    found = copied()
    if found is None:
        if ApiKey.objects.exists() or Environment.objects.filter(offset__gt=0).exists():
            raise AuthzError("this database has data of its own; a follower needs a new one: set DATABASE_URL")
        found = default_environment()
        Environment.objects.filter(pk=found.pk).update(follows=CopyState(url).text)
    return found


def copied() -> Environment | None:
    """Return the environment of this database that is a copy, if there is one."""
    return Environment.objects.exclude(follows__in=("", MOVED)).first()


class CopyKeeper:
    """Stores what the main service sends."""

    def __init__(self, environment_id: int, url: str):
        self.environment_id = environment_id
        stored = Environment.objects.values_list("follows", "offset").get(pk=environment_id)
        self.state, self.offset = replace(CopyState(**orjson.loads(stored[0])), url=url), stored[1]
        self._expected: dict[int, ChangeCounts] = {}  # of the revisions of the current transaction
        self._touched: set[int] = set()  # the numbers of their signatures

    @property
    def digest(self) -> str:
        return digest_of(keys_of(self.environment_id))

    def note(self, **changes: Any) -> None:
        """Change the stored state."""
        self.state = replace(self.state, **changes)
        execute("UPDATE authz_environment SET follows = %s WHERE id = %s", (self.state.text, self.environment_id))

    def discard(self) -> None:
        """Invalidate the copy: from now on no key is valid here. The next snapshot replaces the rest."""
        with changing():
            ApiKey.objects.filter(environment=self.environment_id).delete()
            self._set(policy_version_id=None)
            self.note(position=None, is_complete=False)

    def take(self, answer: Sent, go_on: Callable[[str], Sent]) -> None:
        """Store an answer in one transaction; with the remaining parts of its last revision, which `go_on` requests.

        The pages of a snapshot have a transaction each: until the last one is stored, nothing is answered.
        """
        state, offset = self.state, self.offset
        self._expected, self._touched = {}, set()
        try:
            with changing(), fact_table().expect_many():
                self._store(answer)
                while self.state.is_complete and isinstance(self.state.position, str):
                    self._store(go_on(self.state.position))
        except BaseException:
            self.state, self.offset = state, offset
            raise

    def _store(self, answer: Sent) -> None:
        self._check(answer)
        if self.state.position is None:
            self._clear()
        for change in answer["changes"]:
            self._store_row(change)
            self._change_facts(change)
        if isinstance(answer["next"], int):
            self._check_counts()
            self._complete(answer)
        current_at = answer["current_at"] or self.state.current_at
        self.note(position=answer["next"], current_at=current_at, is_refused=False)

    def _check(self, answer: Sent) -> None:
        """Raise `Differs` if the answer does not continue this copy."""
        if answer["format"] != FORMAT:
            raise AuthzError("the main service has another version; install the same one")
        if self.state.position is not None:
            revision = int(str(self.state.position).partition(".")[0])
            if answer["base"] != made_at(self.environment_id, revision):
                raise Differs(f"revision {revision} differs; perhaps the main service was restored from a backup")

    def _clear(self) -> None:
        """Delete the former copy. Signatures keep their numbers, which processes have cached."""
        mine = self.environment_id
        for number in signature_numbers(mine).values():
            for name in (STORED, PAST):
                execute(table.delete("sig = %s", table=name), (number,))
        execute("UPDATE authz_signature SET since = 0 WHERE environment_id = %s", (mine,))
        outdate_statements(mine)
        execute("DELETE FROM authz_revision WHERE environment_id = %s", (mine,))
        self._set(policy_version_id=None, offset=0, horizon=0)
        PolicyVersion.objects.filter(environment=mine).delete()

    def _change_facts(self, change: Sent) -> None:
        number, work = change["revision"], self._work()
        gone = [exact_pattern(fact) for fact in batch_from_json(change["deleted"], "")]
        facts = batch_from_json(change["inserted"], "")
        work.make([(number, Deletes(gone)), (number, Inserts(facts))])
        self._touched |= work.touched
        if change["kind"] != "state":
            self._expected[number] = ChangeCounts(*change["made"][5:])
        elif work.inserted != len(facts):
            raise Differs("a page of the snapshot has facts that are stored already")

    def _check_counts(self) -> None:
        """Raise `Differs` unless each revision has changed as many facts here as at the main service."""
        numbers = list(self._expected)
        if numbers:
            found = changed(self._touched, numbers[0], numbers[-1])
            wrong = [number for number in numbers if found[number] != self._expected[number]]
            if wrong:
                raise Differs(f"revision {wrong[0]} changed other facts; perhaps past facts were forgotten meanwhile")

    def _store_row(self, change: Sent) -> None:
        """Store the row of a revision, and the policy that became active."""
        number, at, author, request_id, kind, inserted, deleted = change["made"]
        policy = change.get("policy")
        mine = PolicyVersion.objects.filter(environment=self.environment_id)
        stored = policy and mine.filter(number=policy["number"]).values_list("digest", flat=True).first()
        if policy is not None and stored is None:
            created_at = datetime.fromisoformat(policy["created_at"])
            made = PolicyVersion.objects.create(
                environment_id=self.environment_id, **(policy | {"created_at": created_at})
            )
            PolicyVersion.objects.filter(pk=made.pk).update(created_at=created_at)
        elif policy is not None and stored != policy["digest"]:
            raise Differs(f"policy version {policy['number']} differs")
        version = mine.values_list("pk", flat=True).get(number=change["version"]) if change["version"] else None
        places = ", ".join(["%s"] * 9)
        execute(
            f"INSERT INTO authz_revision ({COLUMNS}) VALUES ({places}) ON CONFLICT DO NOTHING",
            (self.environment_id, number, at, author, request_id, version, kind, inserted, deleted),
        )

    def _complete(self, answer: Sent) -> None:
        """Make the revision current that the answer ends with."""
        number: int = answer["next"]
        if answer["keys"] is not None:
            self._store_keys(answer["keys"])
        if not self.state.is_complete:
            self._set(horizon=number)
        if number != self.offset or not self.state.is_complete:
            version = fetch(
                "SELECT policy_version_id FROM authz_revision WHERE environment_id = %s AND number = %s",
                (self.environment_id, number),
            )
            self._set(offset=number, moment=new_moment(), policy_version_id=version[0][0] if version else None)
        self._set(slug=answer["environment"])
        self.state, self.offset = replace(self.state, is_complete=True), number

    def _store_keys(self, keys: list[list[Any]]) -> None:
        ApiKey.objects.filter(environment=self.environment_id).delete()
        for row in keys:
            fields = dict(zip(_KEY_FIELDS, row))
            for name in ("expires_at", "revoked_at"):
                fields[name] = fields[name] and datetime.fromisoformat(fields[name])
            ApiKey.objects.create(environment_id=self.environment_id, **fields)

    def _set(self, **values: Any) -> None:
        Environment.objects.filter(pk=self.environment_id).update(**values)

    def _work(self) -> Work:
        mark = Environment.objects.values_list("ends_mark", flat=True).get(pk=self.environment_id)
        return Work(self.environment_id, WriterTurn(0, None, mark, 0))
