"""Verify the database, or a backup of it: restored to a scratch database, whose contents are checked."""

import os
import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from itertools import islice
from pathlib import Path
from subprocess import CompletedProcess
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import CommandError
from django.db import Error

import authz_project
from authz_project import backups
from authz_project.backups import BackupFailed, BackupFinding, conninfo, program, run, schema_finding, wrong
from authz_project.database import APPLIED, SchemaState, missing_database, state_of, state_of_database
from authz_project.models import ApiKey
from authz_project.settings import database_from_url
from checks.asking import ask
from checks.asking.ask import Trusted
from checks.asking.question import Asked, allow
from facts.keyset_pages import known_ids
from facts.models import PAST, STORED
from facts.read import read_snapshot
from facts.table import fetch, select
from policy.active import program_of_version
from policy.core.spaces import everywhere
from policy.errors import AuthzError, one_line
from policy.management.command import ServiceCommand, counted
from policy.models import Environment
from policy.rules.program import Program
from policy.values import STRING, Value


class Command(ServiceCommand):
    help = (
        "Verify that the database, or BACKUP, is consistent: schema, facts against the revisions that made them,"
        " and whether policies compile and answer. Read-only."
    )

    def add_arguments(self, parser):
        file = parser.add_argument(
            "file", nargs="?", type=Path, metavar="BACKUP",
            help="File made by `backup` or pg_dump (default: verify the database in use).",
        )  # fmt: skip
        database = parser.add_argument(
            "--database", metavar="URL",
            help="Empty PostgreSQL database to restore a dump into. Variables are expanded: ${VAR}.",
        )  # fmt: skip
        self.only_with(database, file)

    def handle(self, *, file: Path | None, database: str | None, **options: Any) -> None:
        if file is None:
            is_good = self._in_use()
        elif backups.kind_of(file) == backups.SQLITE:
            is_good = self._sqlite(file, database)
        else:
            is_good = self._dump(file, database and filled_in(database))
        if not is_good:
            self.stderr.write(f"{file or 'The database'} is not consistent.")
            sys.exit(1)

    def _in_use(self) -> bool:
        if missing := missing_database():
            raise CommandError(f"No database at {missing}. Set DATABASE_URL to its location.")
        try:
            return self._report(findings())
        except Error as reason:
            raise CommandError(f"Cannot read the database: {one_line(reason)}") from None

    def _sqlite(self, file: Path, database: str | None) -> bool:
        if database:
            raise CommandError("--database is for PostgreSQL dumps only. Omit it for a copy of an SQLite database.")
        with self.progress("reading"):
            found = [*backups.sqlite_findings(file)]
        if not self._report(found):
            return False
        with self.progress("checking answers"):
            is_good, said = sqlite_looked_at(file)
        self.stdout.write(said)
        return is_good

    def _dump(self, file: Path, url: str | None) -> bool:
        if not self._report(backups.dump_findings(file)):
            return False
        if url is None:
            self.stderr.write("The contents were not verified. Pass --database with an empty database to restore into.")
            return True
        config = scratch_config(url)
        with self.progress("restoring"):
            state = restore_dump(file, config)
        if not self._report([schema_finding(state)]):
            return False
        with self.progress("checking answers"):
            is_good, said = looked_at(url, config["OPTIONS"]["options"])
        self.stdout.write(said)
        return is_good

    def _report(self, found: Iterable[BackupFinding]) -> bool:
        are_good = True
        for finding in found:
            self.stdout.write(str(finding))
            are_good &= finding.is_good
        return are_good


def filled_in(url: str) -> str:
    """Expand ${VAR} in a URL, so that process lists show the variable's name and not the password."""

    def value(found: re.Match[str]) -> str:
        if found[1] not in os.environ:
            raise CommandError(f"--database names the variable {found[1]}, which is not set.")
        return os.environ[found[1]]

    return re.sub(r"\$\{(\w+)\}", value, url)


def scratch_config(url: str) -> dict[str, Any]:
    """Return the settings of the scratch database, which must not be the one in use."""
    try:
        config = database_from_url(url, "--database")
    except ImproperlyConfigured as reason:
        raise CommandError(str(reason).replace("DATABASE_URL", "--database")) from None
    if not config["ENGINE"].endswith("postgresql"):
        raise CommandError("--database must be the URL of a PostgreSQL database: postgres://user:password@host/name")
    if all(config.get(part) == settings.DATABASES["default"].get(part) for part in ("HOST", "PORT", "NAME")):
        raise CommandError("--database is the database in use. Use an empty database.")
    return config


# ---- checks -------------------------------------------------------------------------------------------------------
# Whether an environment's policy compiles and works: checks must allow everything that a list contains.

NOBODY = "(not in any fact)"
MOST_ACTORS, MOST_CHECKED = 20, 20


def finding_of_policy(environment: Environment) -> BackupFinding:
    """Compile the active policy, and run queries with it."""
    what = f"policy of `{environment.slug}`"
    version = environment.policy_version
    if version is None:
        return BackupFinding(what, "no version is active")
    if version.environment_id != environment.pk:
        return wrong(what, "the active version belongs to another environment")
    try:
        program = program_of_version(version.pk)
    except AuthzError as reason:
        return wrong(what, f"version {version.number} does not compile: {one_line(reason)}")
    try:
        return BackupFinding(what, f"version {version.number} compiles; {_asked(environment.pk, program)}")
    except AuthzError as reason:  # not a fault of the stored data
        return BackupFinding(what, f"version {version.number} compiles; a check was rejected: {one_line(reason)}")
    except _Contradiction as reason:
        return wrong(what, f"version {version.number}: {reason}")


class _Contradiction(Exception):
    """Two results that contradict each other."""


def _asked(environment_id: int, program: Program) -> str:
    """Run list queries until one has results, and describe the last one."""
    answered = "nothing to check"
    for actor, action, resource_type in islice(_questions(environment_id, program), MOST_ACTORS):
        listed = _list(environment_id, actor, action, resource_type)
        _confirm(environment_id, actor, action, resource_type, listed)
        answered = f'{actor.type}:{actor.id} can "{action}" {len(listed):,} {resource_type}'
        if listed:
            break
    return answered


def _questions(environment_id: int, program: Program) -> Iterator[tuple[Value, str, str]]:
    """Yield actors that appear in facts, with actions and resource types that may be allowed, in alphabetical order."""
    types = sorted(program.types.values(), key=lambda each: each.name)
    asked = [(each.permissions[0], each.name) for each in types if each.permissions]
    actors = [each.name for each in types if each.kind == "actor"]
    ids = known_ids(environment_id, actors, limit=MOST_ACTORS)
    for actor_type in actors:
        for text in ids.get(actor_type) or [NOBODY]:
            for action, resource_type in asked:
                yield Value(actor_type, text), action, resource_type


def _list(environment_id: int, actor: Value, action: str, resource_type: str) -> list[str | None]:
    question = allow(Asked(actor.type, (actor.id,)), Asked(STRING, (action,)), Asked(resource_type), ("resource",))
    return [row[0] for row in ask.answer(Trusted(environment_id), question).of_one]


def _confirm(environment_id: int, actor: Value, action: str, resource_type: str, listed: list[str | None]) -> None:
    """Compare single checks with a list, in which None stands for every resource. Raise _Contradiction."""
    expected = {text: True for text in listed[:MOST_CHECKED] if text is not None}
    expected.setdefault(NOBODY, None in listed)
    for text, is_allowed in expected.items():
        resource = Asked(resource_type, (text,))
        found = ask.answer(
            Trusted(environment_id), allow(Asked(actor.type, (actor.id,)), Asked(STRING, (action,)), resource)
        )
        if found.holds != is_allowed:
            raise _Contradiction(f'list and check differ: {actor} "{action}" {resource_type}:{text}')


# ---- contents -----------------------------------------------------------------------------------------------------
# Check the connected database: consistency of its contents, and whether its policies work.


def findings() -> Iterator[BackupFinding]:
    """Yield all findings of the home database and of each space."""
    for space in everywhere():
        for finding in _findings_here():
            yield finding._replace(what=f"{finding.what} ({space})") if space else finding


def _findings_here() -> Iterator[BackupFinding]:
    """Yield all findings; only the schema's if it is not up to date."""
    state = state_of_database()
    schema = schema_finding(state)
    if not state.is_current:
        yield wrong(schema.what, schema.text)
        return
    yield schema
    yield _signatures()
    environments = counted(Environment.objects.count(), "environment")
    yield BackupFinding("keys", f"{counted(ApiKey.objects.count(), 'key')} of {environments}")
    for number in list(Environment.objects.order_by("slug").values_list("pk", flat=True)):
        yield from _of_environment(number)


@read_snapshot()
def _of_environment(number: int) -> list[BackupFinding]:
    """Return what is found in one snapshot, since others may change facts meanwhile; nothing if it was deleted."""
    found = Environment.objects.select_related("policy_version").filter(pk=number)
    return [look(environment) for environment in found for look in (_facts_and_revisions, finding_of_policy)]


def _signatures() -> BackupFinding:
    """Check that the signature of every fact exists; there is no foreign key that enforces it."""
    lost = 0
    for table in (STORED, PAST):
        used = f"SELECT COUNT(*) FROM ({select('DISTINCT sig', table=table)}) AS used"
        lost += fetch(f"{used} WHERE NOT EXISTS (SELECT 1 FROM authz_signature s WHERE s.id = used.sig)")[0][0]
    if lost:
        return wrong("signatures", f"facts refer to {counted(lost, 'missing signature')}")
    return BackupFinding("signatures", "all intact")


# ---- consistency of facts and revisions -----------------------------------------------------------------------------


class _StoredRows(NamedTuple):
    """Statistics about an environment's facts and the revisions that they refer to."""

    facts: int
    past: int
    ended: int  # past facts that ended since the horizon
    latest: int  # revision that any of them refers to
    at_horizon: int  # facts valid at the horizon, as far as still known
    backwards: int  # past facts that ended before they began
    early: int  # facts, including past ones, that are older than their signature


def _facts_and_revisions(environment: Environment) -> BackupFinding:
    what = f"facts of `{environment.slug}`"
    offset, horizon = environment.offset, environment.horizon
    stored = _stored(environment)
    revisions, newest, version, inserted, deleted = _revisions(environment)
    expected = max(0, offset - max(horizon, 1) + 1)
    known = stored.at_horizon + inserted - deleted
    forgotten = deleted - stored.ended  # `delete_facts --forget` leaves no other trace
    faults = {
        f"the offset is {offset:,}, but the last revision is {newest:,}": offset and newest != offset,
        f"{counted(abs(expected - revisions), 'revision')} {'missing' if revisions < expected else 'too many'}":
            revisions != expected,
        f"facts refer to revision {stored.latest:,}, but the last one is {offset:,}": stored.latest > offset,
        f"{counted(stored.backwards, 'past fact')} ended before the revision that added it": stored.backwards,
        f"{counted(-forgotten, 'past fact')} more than the revisions deleted": forgotten < 0,
        f"{counted(stored.early, 'fact')} older than the first of the same signature": stored.early,
        "the active policy differs from that of the last revision": offset and newest == offset
            and version != environment.policy_version_id,
        # Pruning deletes past facts, so more may be stored than the known revisions inserted.
        f"{stored.facts:,} are stored, but the revisions add up to {known:,}":
            stored.facts < known or (horizon == 0 and stored.facts != known),
        "the horizon is after the last revision": horizon > offset,
    }  # fmt: skip
    if found := [fault for fault, is_there in faults.items() if is_there]:
        return wrong(what, "; ".join(found))
    since = f", known since revision {horizon:,}" if horizon else ""
    missing = f", {counted(forgotten, 'past fact')} forgotten" if forgotten else ""
    here = f"{stored.facts:,} stored and {stored.past:,} past at revision {offset:,}"
    return BackupFinding(what, f"{here}{since}{missing}")


def _stored(environment: Environment) -> _StoredRows:
    mine = ("s.id = f.sig", "s.environment_id = %s")
    early = _how_many("f.since < s.since")
    horizon = environment.horizon
    of_stored = f"COUNT(*), COALESCE(MAX(f.since), 0), {_how_many('f.since <= %s')}, {early}"
    ((facts, since, facts_then, facts_early),) = fetch(
        select(of_stored, *mine, beside="authz_signature s", alias="f"), (horizon, environment.pk)
    )
    of_past = (
        f"COUNT(*), COALESCE(MAX(f.until), 0), {_how_many('f.since <= %s AND f.until > %s')},"
        f" {_how_many('f.until > %s')}, {_how_many('f.since >= f.until')}, {early}"
    )
    ((past, until, past_then, ended, backwards, past_early),) = fetch(
        select(of_past, *mine, table=PAST, beside="authz_signature s", alias="f"), (*[horizon] * 3, environment.pk)
    )
    latest, at_horizon = max(since, until), facts_then + past_then
    return _StoredRows(facts, past, ended, latest, at_horizon, backwards, facts_early + past_early)


def _how_many(condition: str) -> str:
    return f"COALESCE(SUM(CASE WHEN {condition} THEN 1 ELSE 0 END), 0)"


def _revisions(environment: Environment) -> tuple[int, int, int | None, int, int]:
    """Return the number of revisions since the horizon, the newest with its policy, and the changes since."""
    horizon = environment.horizon
    ((number, newest, inserted, deleted),) = fetch(
        "SELECT COUNT(*), COALESCE(MAX(number), 0),"
        " COALESCE(SUM(CASE WHEN number > %s THEN inserted ELSE 0 END), 0),"
        " COALESCE(SUM(CASE WHEN number > %s THEN deleted ELSE 0 END), 0)"
        " FROM authz_revision WHERE environment_id = %s AND number >= %s",
        (horizon, horizon, environment.pk, max(horizon, 1)),
    )
    last = fetch(
        "SELECT policy_version_id FROM authz_revision WHERE environment_id = %s AND number = %s",
        (environment.pk, newest),
    )
    return number, newest, last[0][0] if last else None, int(inserted), int(deleted)


# ---- scratch database ---------------------------------------------------------------------------------------------
# Check a copy in a scratch database, in a child process, because this process is configured for another database.

SIGNS_NOTHING = "a process that lets nobody log in needs no secret"


def looked_at(url: str, options: str = "") -> tuple[bool, str]:
    """Migrate the database at the URL, with these parameters, and check it.

    Return whether it is good, and the report.
    """
    if options:
        parts = urlsplit(url)
        query = dict(parse_qsl(parts.query)) | {"options": f"{options} -c statement_timeout=0"}
        url = urlunsplit(parts._replace(query=urlencode(query, quote_via=quote)))
    failed = _run(url, "migrate", "--verbosity", "0")
    if failed.returncode:
        return False, f"WRONG  upgrade: {_last_line(failed.stderr)}"
    found = _run(url, "verify")
    if not found.stdout:
        return False, f"WRONG  contents: {_last_line(found.stderr)}"
    return found.returncode == 0, found.stdout.rstrip("\n")


def _run(url: str, *command: str) -> CompletedProcess[str]:
    root = str(Path(authz_project.__file__).parents[1])
    variables = {
        "DATABASE_URL": url, "DJANGO_SETTINGS_MODULE": "authz_project.settings", "SECRET_KEY": SIGNS_NOTHING,
        "PYTHONPATH": os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")])), "STATEMENT_TIMEOUT": "0",
        "DATABASE_REPLICA_URL": "", "DATABASE_URLS": "",
    }  # fmt: skip
    return run([sys.executable, "-m", "django", *command], variables)


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or ["ended without a message"])[-1][:300]


# ---- SQLite --------------------------------------------------------------------------------------------------------


def sqlite_looked_at(file: Path) -> tuple[bool, str]:
    """Like `looked_at`, on a second copy in a temporary folder, because the check migrates the database."""
    with TemporaryDirectory(prefix="authz-") as folder:
        copied = Path(folder) / "copy.sqlite3"
        try:
            shutil.copyfile(file, copied)
        except OSError as reason:
            told = f"Cannot copy the backup to `{folder}`: {reason.strerror}. Set TMPDIR to another folder."
            raise BackupFailed(told) from None
        return looked_at(f"sqlite:///{copied}")


# ---- PostgreSQL ----------------------------------------------------------------------------------------------------


def restore_dump(file: Path, config: Mapping[str, Any]) -> SchemaState:
    """Restore a dump to an empty database, and return the state of its schema, where `config` leads from now on.

    Spaces on other servers are not in a dump, and must not be looked at for it: the copy forgets them.
    """
    restoring = program("pg_restore")
    if restoring is None:
        raise BackupFailed("pg_restore is not installed. Install PostgreSQL's client programs.")
    if backups.has_key_password(config):
        raise BackupFailed(
            "pg_restore reads sslpassword only from a service file. Put it there, and ?service=NAME in the URL."
        )
    options = config["OPTIONS"]
    options["options"] += f" -c search_path={backups.schema_of_dump(file, restoring)}"
    if tables := _rows(config, _COUNT_OF_TABLES)[0][0]:
        raise BackupFailed(f"The database is not empty: it has {tables:,} tables. Use an empty one.")
    how = ("--no-owner", "--no-privileges", "--exit-on-error")
    done = run([restoring.path, *how, f"--dbname={conninfo(config)}", file], backups.password_of(config))
    if done.returncode:
        raise BackupFailed(f"pg_restore {restoring.version}: {one_line(done.stderr)}")
    state = state_of(_rows(config, APPLIED))
    if _rows(config, "SELECT 1 FROM pg_tables WHERE schemaname = current_schema() AND tablename = 'authz_space'"):
        _rows(config, "DELETE FROM authz_space WHERE server <> '' RETURNING 1")
    return state


_COUNT_OF_TABLES = "SELECT COUNT(*) FROM pg_tables WHERE schemaname = ANY(current_schemas(false))"


def _rows(config: Mapping[str, Any], statement: str) -> list[Any]:
    password = config.get("PASSWORD")
    psycopg = import_module("psycopg")  # imported only here: SQLite does not need it
    try:
        options = {"options": config["OPTIONS"]["options"]} | ({"password": password} if password else {})
        with psycopg.connect(conninfo(config), **options) as database:
            return database.execute(statement).fetchall()
    except psycopg.Error as reason:
        raise BackupFailed(f"Cannot reach the database: {one_line(reason)}") from None
