"""Spaces: which there are, which environment lives where, and how requests get there.

The home database has the directory. A process remembers where environments are, and looks there: if the key opens
nothing, because the environment was moved, or never was there, it reads the directory again.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from django.conf import settings
from django.core.management import call_command
from django.db import DEFAULT_DB_ALIAS, Error, connection, connections, transaction
from django.db.backends.signals import connection_created
from django.db.models import Max, Model
from django.db.models.signals import post_delete, post_save
from django.dispatch import receiver

from authz_project.database import is_pooled, let_go_if_broken, refresh_connection
from authz_project.keys import TEST_SLUG, hash_of, slug_of
from authz_project.models import ApiKey, EnvironmentPlace, Space
from facts.table import execute, fetch
from policy.core.clock import SERVER, is_citus
from policy.core.journal import MOVED
from policy.core.spaces import HOME, close_others, configure, current, entered
from policy.errors import AuthzError, NotFound, Unavailable, one_line
from policy.models import Environment

log = logging.getLogger("authz.spaces")

T = TypeVar("T")

NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")
RESERVED = re.compile(r"pg_.*|public|home|information_schema|citus.*")

# Ids are unique among all spaces: each gives those of its own block.
FIRST, BLOCK = 1 << 30, 1 << 21  # the home database gives those below FIRST
MOST = 511  # spaces
_SEQUENCES = "FROM pg_sequences WHERE schemaname = current_schema()"


# ---- which spaces there are -----------------------------------------------------------------------------------------

SPACE = "SPACE"  # in Django's settings of a database: the name of the space


def learn(space: Space) -> None:
    """Let this process enter the space, if it knows the server."""
    if space.server and space.server not in settings.DATABASE_URLS:
        return
    with entered(HOME):
        usual: Mapping[str, Any] = connections[DEFAULT_DB_ALIAS].settings_dict
    config = settings.DATABASE_URLS[space.server] if space.server else usual
    place: dict[str, Any]
    if config.get("PARAMETERS"):  # a pooler takes no search_path: its own database of this name has one
        place = {"NAME": f"{config['NAME']}_{space.name}"}
    else:
        options = config["OPTIONS"]
        place = {"OPTIONS": {**options, "options": f"{options.get('options', '')} -c search_path={space.name}".strip()}}
    configure(space.name, {**usual, "PARAMETERS": None, **config, **place, SERVER: space.server, SPACE: space.name})


@receiver(connection_created)
def _confirm_place(connection: Any, **_: object) -> None:
    """Refuse a database of a pooler that leads to other tables than those of the space."""
    about = connection.settings_dict
    if about.get(SPACE) and about["PARAMETERS"]:
        (path,) = connection.connection.execute("SELECT current_setting('search_path')").fetchone()
        if path != about[SPACE]:
            connection.close()
            raise Unavailable(f"PgBouncer's database `{about['NAME']}` has another search_path than `{about[SPACE]}`")


def spaces() -> list[Space]:
    """Return the spaces that have tables."""
    with entered(HOME):
        found = list(Space.objects.filter(is_ready=True)) if connection.vendor == "postgresql" else []
    for space in found:
        learn(space)
    return found


def everywhere() -> Iterator[str]:
    """Enter the home database and each space in turn; yield their names."""
    yield HOME
    for space in spaces():
        with entered(space.name):
            let_go_if_broken()
            yield space.name
        close_others()


def in_each(do: Callable[[], object]) -> None:
    """Do it in the home database and in each space. If one of those cannot be used, go on with the next one."""
    do()
    for space in spaces():
        try:
            with entered(space.name):
                let_go_if_broken()
                do()
        except (Error, Unavailable) as reason:
            log.warning("space %s: %s", space, one_line(reason))
    close_others()


# ---- which environment lives where ----------------------------------------------------------------------------------


class PlaceFound(NamedTuple):
    """Where an environment lives, and whether it is being moved."""

    space: str
    is_moving: bool = False


def place_of(slug: str) -> PlaceFound:
    """Return where the environment is or would be; also if it does not exist."""
    with entered(HOME):
        place = EnvironmentPlace.objects.filter(slug=slug).first() if connection.vendor == "postgresql" else None
        if place is None:
            return PlaceFound(HOME)
        if place.space:
            learn(Space.objects.get(pk=place.space))
    return PlaceFound(place.space, place.target is not None)


SETTLED = 5.0  # seconds for which a request waits for the end of a move
IN_VAIN = 30.0  # seconds for which none waits again after that: waiting requests occupy threads that others need
LOOK_EVERY = 0.02

MOVING = "the environment is being moved; try again"


@dataclass
class SpaceDirectory:
    """What this process remembers. An entry may be outdated: then its space refuses the key."""

    spaces: dict[str, str] = field(default_factory=dict)  # by slug; those that are not at home
    in_vain: dict[str, float] = field(default_factory=dict)  # by slug: until when no request waits for its move

    def space_of(self, token: str) -> str:
        """Return the space where the key's environment was last seen."""
        return self.spaces.get(slug_of(token), HOME) if self.spaces else HOME

    def look_up(self, token: str) -> str:
        """Read where the key's environment is, after a space has refused the key.

        Wait for the end of a move that has closed the old place. Strangers do not wait: the key has to be one that the
        move sealed.
        """
        slug = slug_of(token)
        if connection.vendor != "postgresql" or not slug:
            return HOME
        with entered(HOME):
            let_go_if_broken()
            until = time.monotonic() + SETTLED
            while (found := place_of(slug)).is_moving:
                if not _is_sealed(token, found.space) and place_of(slug) == found:
                    break
                now = time.monotonic()
                if now > until:
                    self.in_vain[slug] = now + IN_VAIN
                if now < self.in_vain.get(slug, 0.0):
                    raise Unavailable(MOVING)
                time.sleep(LOOK_EVERY)
            else:
                self.in_vain.pop(slug, None)
        if found.space:
            self.spaces[slug] = found.space
        else:
            self.spaces.pop(slug, None)
        return found.space


# A key whose hash is written with other letters opens nothing: so are those of a place that is closed, or not yet open.
_DIGITS, _SEALED = "0123456789abcdef", "ghijklmnopqrstuv"
SEAL = f"UPDATE api_key SET hash = translate(hash, '{_DIGITS}', '{_SEALED}') WHERE environment_id = %s"
UNSEAL = f"UPDATE api_key SET hash = translate(hash, '{_SEALED}', '{_DIGITS}') WHERE environment_id = %s"


def _is_sealed(token: str, space: str) -> bool:
    """Return whether a move has closed the place of the key."""
    sealed = hash_of(token).translate(str.maketrans(_DIGITS, _SEALED))
    with entered(space):
        return ApiKey.objects.filter(hash=sealed, environment__follows=MOVED).exists()


directory = SpaceDirectory()


def in_place(token: str, do: Callable[[], T], is_refused: Callable[[T], bool], found: T | None = None) -> T:
    """Return what `do` returns in the space of the key's environment, wherever it is now.

    Pass what it has returned in the home database as `found`, if no other space is known.
    """
    space = directory.space_of(token)
    if found is None:
        with entered(space):
            found = do()
    while is_refused(found) and (now := directory.look_up(token)) != space:
        with entered(now):  # a move may close this place, too, before it answers
            space, found = now, do()
    return found


def find(slug: str) -> str:
    """Return the space of an environment, for a command that works in it; those that run for long ask again."""
    with entered(HOME):
        let_go_if_broken()
        return place_of(slug).space


# ---- the admin ------------------------------------------------------------------------------------------------------

AT_HOME = "home"  # Django's alias of the home database, for a thread that works in a space
# What the home database has for all spaces.
_OF_HOME = {
    "auth",
    "contenttypes",
    "sessions",
    "admin",
    "authz_project.space",
    "authz_project.environmentplace",
    "authz_project.loginattempts",
}


class HomeRouter:
    """Reads users, sessions and spaces from the home database while a thread works in a space."""

    def db_for_read(self, model: type[Model], **hints: object) -> str | None:
        if not current() or _OF_HOME.isdisjoint((model._meta.app_label, model._meta.label_lower)):
            return None
        connections.settings.setdefault(AT_HOME, connections.settings[DEFAULT_DB_ALIAS])
        return AT_HOME

    db_for_write = db_for_read

    def allow_relation(self, *objects: Model, **hints: object) -> bool | None:
        return True if current() else None


def space_of_page(slug: str, before: str) -> str:
    """Return the space for a page about the environment; without one that exists, the space `before`."""
    if connection.vendor != "postgresql":
        return HOME
    space = before
    if slug and "\0" not in slug:
        place = EnvironmentPlace.objects.filter(slug=slug).first()
        if place is not None:
            space = place.space
        elif Environment.objects.filter(slug=slug).exists():
            space = HOME
    if space == HOME or space not in {each.name for each in spaces()}:
        return HOME
    try:
        with entered(space):
            refresh_connection(let_go_if_broken())
            return space if Environment.objects.exists() else HOME
    except (Error, Unavailable):  # the page of spaces says why it cannot be used
        return HOME


def slugs_elsewhere() -> list[str]:
    """Return the names of environments in other spaces than this one."""
    if connection.vendor != "postgresql":
        return []
    here = current()
    with entered(HOME):
        placed = list(EnvironmentPlace.objects.exclude(space=here).values_list("slug", flat=True))
        return sorted(placed + list(Environment.objects.values_list("slug", flat=True) if here else ()))


@receiver(post_save, sender=Environment)
def _note_place(instance: Environment, created: bool, **_: object) -> None:
    if created and current():
        name = current()
        with entered(HOME):
            EnvironmentPlace.objects.update_or_create(slug=instance.slug, defaults={"space": name})


@receiver(post_delete, sender=Environment)
def _forget_place(instance: Environment, **_: object) -> None:
    if name := current():
        with entered(HOME):
            EnvironmentPlace.objects.filter(slug=instance.slug, space=name).delete()


# ---- creating a space -----------------------------------------------------------------------------------------------


class NotASpace(AuthzError):
    """A space that cannot be created, or a name that is none."""


def create(name: str, server: str = "") -> Space:
    """Create the space, or complete one whose creation was interrupted."""
    _refuse(name, server)
    space = _registered(name, server)
    learn(space)
    _reach(name)
    _limit_home()
    _make_schema(space)
    with entered(name):
        call_command("migrate", verbosity=0)
        prepare(name)
        if is_citus():
            execute("SELECT citus_schema_distribute(%s::regnamespace)", [name])
    Space.objects.filter(pk=name).update(is_ready=True)
    return Space.objects.get(pk=name)


def _refuse(name: str, server: str) -> None:
    if not NAME.fullmatch(name) or RESERVED.fullmatch(name):
        raise NotASpace(f"`{name}` is not a name for a space: 1 to 40 lowercase letters, digits and _, none reserved.")
    if server and server not in settings.DATABASE_URLS:
        known = ", ".join(f"`{each}`" for each in settings.DATABASE_URLS) or "none"
        raise NotASpace(f"Server `{server}` does not exist. DATABASE_URLS names {known}.")


def _registered(name: str, server: str) -> Space:
    with transaction.atomic():
        execute("LOCK TABLE authz_space IN SHARE ROW EXCLUSIVE MODE")
        space = Space.objects.filter(pk=name).first()
        if space is None:
            number = (Space.objects.aggregate(Max("number"))["number__max"] or 0) + 1
            if number > MOST:
                raise NotASpace(f"There are {MOST} spaces already, the most that an installation can have.")
            return Space.objects.create(name=name, server=server, number=number)
    if space.is_ready:
        raise NotASpace(f"Space `{name}` already exists.")
    if space.ids_given:  # it was dropped
        space.server = server
        space.save(update_fields=["server"])
    if space.server != server:
        raise NotASpace(f"Space `{name}` is on another server. Its creation was interrupted: repeat it there.")
    return space


def _reach(name: str) -> None:
    """Connect to the space. A pooler must know it."""
    with entered(name):
        config = connection.settings_dict
        try:
            connection.ensure_connection()
        except (Error, Unavailable) as reason:
            if not is_pooled():
                raise
            line = f"{config['NAME']} = host=… dbname={connections.settings[DEFAULT_DB_ALIAS]['NAME']}"
            raise NotASpace(
                f"{one_line(reason)}. In PgBouncer's [databases], add `{line} connect_query='SET "
                f"search_path TO {name}'`, RELOAD and RECONNECT, and repeat the command."
            ) from None


def _limit_home() -> None:
    """Keep the home database from giving ids of spaces."""
    for sequence, last in fetch(f"SELECT sequencename, last_value {_SEQUENCES} AND max_value >= %s", [FIRST]):
        if (last or 0) >= FIRST:
            raise NotASpace(f"The home database has given too many ids ({sequence}: {last:,}) to create spaces.")
        execute(f'ALTER SEQUENCE "{sequence}" MAXVALUE {FIRST - 1}')


def _make_schema(space: Space) -> None:
    """Create the schema, unless it exists: then it must be this space's from an attempt before, or empty."""
    with entered(space.name):
        execute(f'CREATE SCHEMA IF NOT EXISTS "{space.name}"')
        tables = set(connection.introspection.table_names())
    if tables and "django_migrations" not in tables:
        Space.objects.filter(pk=space.pk, ids_given=0).delete()
        raise NotASpace(f"Schema `{space}` exists and has tables of something else. Choose another name.")


def prepare(name: str) -> None:
    """Give new tables their block of ids, and remove references to users, who are in the home database."""
    with entered(HOME):
        space = Space.objects.get(pk=name)
    first = FIRST + (space.number - 1) * BLOCK
    start, last = first + space.ids_given, first + BLOCK - 1
    new = f"SELECT sequencename {_SEQUENCES} AND max_value >= %s AND min_value < %s"
    for (sequence,) in fetch(new, [FIRST, FIRST]):
        execute(f'ALTER SEQUENCE "{sequence}" MINVALUE {first} MAXVALUE {last} START {start} RESTART {start}')
    to_users = fetch(
        "SELECT conrelid::regclass::text, quote_ident(conname) FROM pg_constraint"
        " WHERE contype = 'f' AND connamespace = current_schema()::regnamespace"
        " AND confrelid = to_regclass('auth_user') AND conrelid::regclass::text LIKE 'authz%%'"
    )
    for table, constraint in to_users:
        execute(f"ALTER TABLE {table} DROP CONSTRAINT {constraint}")


def space_named(name: str) -> Space:
    found = next((space for space in spaces() if space.name == name), None)
    if found is None:
        raise _no_space(name)
    return found


def _no_space(name: str) -> NotFound:
    return NotFound(f"Space `{name}` does not exist. Create it with `spaces create {name}`.")


def drop(name: str) -> None:
    """Delete the space with its schema, if it has no environments but those of tests.

    Its row stays: the ids that it has given are not given again, since moved environments and processes have them.
    """
    space = space_named(name)
    _check_no_move_to(name)  # early, to avoid waiting for its lock
    with entered(name), transaction.atomic():
        execute("LOCK TABLE authz_environment")  # nobody creates one meanwhile
        slugs = [slug for slug in Environment.objects.values_list("slug", flat=True) if not TEST_SLUG.fullmatch(slug)]
        if slugs:
            raise NotASpace(f"Space `{name}` has environments, such as `{slugs[0]}`. Move or delete them first.")
        ids_given = max(space.ids_given, _ids_given())
        with entered(HOME), kept(name):  # before the schema is gone: if this process dies, it can be created again
            _check_no_move_to(name)
            Space.objects.filter(pk=name).update(is_ready=False, ids_given=ids_given)
            EnvironmentPlace.objects.filter(space=name).delete()
        execute(f'DROP SCHEMA "{name}" CASCADE')
    close_others()


def _check_no_move_to(name: str) -> None:
    moving = EnvironmentPlace.objects.filter(target=name).values_list("slug", flat=True).first()
    if moving is not None:
        raise NotASpace(f"Environment `{moving}` is being moved to space `{name}`. Wait for the end of the move.")


@contextmanager
def kept(name: str) -> Iterator[None]:
    """Keep others from dropping the space, or beginning a move there. Opens a transaction in the home database."""
    with transaction.atomic():
        if not Space.objects.select_for_update().filter(pk=name, is_ready=True).exists():
            raise _no_space(name)
        yield


TEST = "test"


def space_for_tests() -> str:
    """Return the space in which test environments are created: home, unless there is one for them."""
    return TEST if TEST in {space.name for space in spaces()} else HOME


# ---- what is in a space ---------------------------------------------------------------------------------------------


class Contents(NamedTuple):
    environments: int
    facts: int  # an estimate
    size: int  # bytes
    revisions: int  # of all environments


def contents() -> Contents:
    """Return what is in this thread's space."""
    facts, size = (_FACTS_ON_CITUS, _SIZE_ON_CITUS) if is_citus() and current() else (_FACTS, _SIZE)
    (row,) = fetch(
        f"SELECT (SELECT COUNT(*) FROM authz_environment), {facts}, {size},"
        ' (SELECT COALESCE(SUM("offset"), 0)::bigint FROM authz_environment)'
    )
    return Contents(*row)


_FACTS = "(SELECT GREATEST(0, reltuples)::bigint FROM pg_class WHERE oid = 'authz_fact'::regclass)"
_FACTS_ON_CITUS = (
    "(SELECT COALESCE(SUM(result::bigint), 0)::bigint FROM run_command_on_shards('authz_fact',"
    " 'SELECT GREATEST(0, reltuples)::bigint FROM pg_class WHERE oid = ''%%s''::regclass') WHERE success)"
)
_SIZE = (
    "(SELECT COALESCE(SUM(pg_total_relation_size(oid)), 0)::bigint FROM pg_class"
    " WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace)"
)
_SIZE_ON_CITUS = _SIZE.replace("pg_total_relation_size", "citus_total_relation_size")


def host() -> str:
    """Return where the tables of this thread's space are: host and port."""
    if current() and is_citus():
        of_facts = "table_name = 'authz_fact'::regclass LIMIT 1"
        return str(fetch(f"SELECT nodename || ':' || nodeport FROM citus_shards WHERE {of_facts}")[0][0])
    config = connection.settings_dict
    return f"{config['HOST'] or 'this machine'}:{config['PORT'] or 5432}"


class SeenSpace(NamedTuple):
    """A space as pages show it; `trouble` is why it cannot be used."""

    name: str
    host: str
    contents: Contents | None
    environments: list[str]
    trouble: str = ""


MOST_SHOWN = 20  # environments of a space


def seen() -> list[SeenSpace]:
    """Return what is in each space, on PostgreSQL. One that does not respond is shown with the reason."""
    if connection.vendor != "postgresql":
        return []
    found = []
    for name in ["home", *(space.name for space in spaces())]:
        try:
            with entered(HOME if name == "home" else name):
                let_go_if_broken()
                slugs = list(Environment.objects.order_by("slug").values_list("slug", flat=True)[:MOST_SHOWN])
                found.append(SeenSpace(name, host(), contents(), slugs))
        except (Error, Unavailable) as reason:
            found.append(SeenSpace(name, "", None, [], one_line(reason)))
    return found


def share_of_ids() -> float:
    """Return how much of this space's block of ids has been given."""
    return _ids_given() / BLOCK


def _ids_given() -> int:
    """Return how many ids of this space's block have been given, by the sequence that has given most."""
    return fetch(f"SELECT MAX(last_value - min_value + 1) {_SEQUENCES} AND min_value >= %s", [FIRST])[0][0] or 0


def is_distributed() -> bool:
    """Return whether Citus places this space on a server."""
    return bool(fetch("SELECT 1 FROM citus_schemas WHERE schema_name = current_schema()::regnamespace"))
