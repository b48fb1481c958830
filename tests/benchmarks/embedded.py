"""Measure the engine inside a Django project, beside the same by hand, django-guardian and django-rules, in turns.

    python -m tests.benchmarks.embedded --documents 1000000 --database sqlite

It makes the rows of the example project, and for django-guardian a row for each document that the measured users may
read. Figures are the processor time of this process and of PostgreSQL's, and elapsed time; the best of some rounds.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import django
import psycopg
from django.core.management import call_command
from django.db import connections

from tests import postgresql
from tests.service import ROOT

ROUNDS = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--documents", type=int, default=1_000_000)
    parser.add_argument("--database", choices=("sqlite", "postgresql"), default="sqlite")
    options = parser.parse_args()
    with database(options.database) as url:
        set_up(url)
        call_command("migrate", verbosity=0)
        call_command("make_rows", rows=2 * options.documents, users=200)
        measure()


@contextmanager
def database(kind: str):
    if kind == "sqlite":
        with tempfile.TemporaryDirectory() as folder:
            yield f"sqlite:///{folder}/wiki.sqlite3"
        return
    server = postgresql.start()
    assert server is not None, "no PostgreSQL can be started here"
    try:
        yield server.create("wiki")
    finally:
        server.stop()


def set_up(url: str) -> None:
    sys.path.insert(0, str(ROOT / "authz_project" / "examples" / "wiki"))
    os.environ |= {"DJANGO_SETTINGS_MODULE": "wiki.settings", "WIKI_DATABASE_URL": url}
    from wiki import settings

    settings.INSTALLED_APPS += ["guardian"]
    settings.AUTHENTICATION_BACKENDS += ["guardian.backends.ObjectPermissionBackend"]
    settings.ANONYMOUS_USER_NAME = None
    if url.startswith("postgres"):
        settings.DATABASES["default"]["OPTIONS"] = {"prepare_threshold": 2}
    django.setup()


def measure() -> None:
    import rules
    from django.contrib.auth.models import Permission, User
    from django.contrib.contenttypes.models import ContentType
    from django.db import connection
    from django.db.models import Q
    from documents.models import Document, Folder, Project
    from guardian.models import UserObjectPermission
    from guardian.shortcuts import get_objects_for_user

    from checks.asking import run
    from localsql.django import authorize, facts, permitted

    member, few = User.objects.get(username="user57"), User.objects.get(username="user30")
    admin = User.objects.get(username="user3")
    document = Document.objects.filter(folder__project__team__members=member, public=False, archived=False).first()
    Document.objects.filter(public=True).exclude(pk=document.pk).update(public=False)
    few.teams.clear()
    for each in Document.objects.order_by("pk")[:20]:
        facts.insert(("has_role", few, "viewer", each))
    content = ContentType.objects.get_for_model(Document)
    view = Permission.objects.get(content_type=content, codename="view_document")
    for user in (member, few, admin):
        ids = Document.objects.filter(permitted(user, "read", Document)).values_list("pk", flat=True)
        rows = (UserObjectPermission(user=user, permission=view, content_type=content, object_pk=str(pk)) for pk in ids)
        UserObjectPermission.objects.bulk_create(rows, batch_size=5000)
        print(f"{user} may read {len(ids):,} of {Document.objects.count():,} documents")
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("ANALYZE")

    @rules.predicate
    def in_team(user, document):
        return document.folder.project.team.members.filter(pk=user.pk).exists()

    @rules.predicate
    def is_admin(user, document):
        return document.folder.project.organization.membership_set.filter(user=user, role="admin").exists()

    rules.add_perm("documents.read", in_team | is_admin)

    def by_hand(user):
        mine = Project.objects.filter(Q(team__members=user) | Q(organization__membership__in=admins(user)))
        folders = Folder.objects.filter(project__in=mine)
        return Document.objects.filter(Q(public=True) | Q(folder__in=folders) | Q(pk__in=shared(user)))

    def admins(user):
        return user.membership_set.filter(role="admin")

    def shared(user):
        return list(few_ids) if user == few else []

    few_ids = [*Document.objects.filter(permitted(few, "read", Document)).values_list("pk", flat=True)]
    sql = (
        "SELECT EXISTS (SELECT 1 FROM documents_document d JOIN documents_folder f ON f.id = d.folder_id"
        " JOIN documents_project p ON p.id = f.project_id JOIN documents_team_members m ON m.team_id = p.team_id"
        " WHERE d.id = %s AND m.user_id = %s UNION ALL SELECT 1 FROM documents_document d"
        " JOIN documents_folder f ON f.id = d.folder_id JOIN documents_project p ON p.id = f.project_id"
        " JOIN documents_membership m ON m.organization_id = p.organization_id AND m.role = 'admin'"
        " WHERE d.id = %s AND m.user_id = %s)"
    )

    def hand_check():
        with connection.cursor() as cursor:
            cursor.execute(sql, (document.pk, member.pk, document.pk, member.pk))
            return bool(cursor.fetchone()[0])

    def same_sql():
        """Run the statement of `authorize` by the driver, prepared on PostgreSQL."""
        raw = connection.connection
        if connection.vendor == "sqlite":
            return bool(raw.execute(*asked).fetchone()[1])
        with psycopg.RawCursor(raw) as cursor:
            return cursor.execute(*asked, prepare=True).fetchone()[1]

    def fresh():
        return Document.objects.get(pk=document.pk)

    authorize(member, "read", document)
    with patch.object(run, "execute", wraps=run.execute) as executed:
        authorize(member, "read", document)
    statement, slots = executed.call_args.args
    asked = statement.sql, statement.values(slots | statement.constants)

    table: dict[str, dict[str, Callable[[], object]]] = {
        "check": {
            "authorize": lambda: authorize(member, "read", document),
            "the same SQL": same_sql,
            "by hand, by a cursor": hand_check,
            "django-guardian": lambda: _without_cache(member).has_perm("documents.view_document", document),
            "django-rules": lambda: rules.has_perm("documents.read", member, fresh()),
        },
    }
    for name, user in (("a team's member", member), ("an admin", admin), ("one with 20 grants", few)):
        table[f"page of 20, {name}"] = {
            "permitted": lambda u=user: [*Document.objects.filter(permitted(u, "read", Document)).order_by("-pk")[:20]],
            "by hand, a queryset": lambda u=user: [*by_hand(u).order_by("-pk")[:20]],
            "django-guardian": lambda u=user: [
                *get_objects_for_user(u, "documents.view_document", Document).order_by("-pk")[:20]
            ],
        }
        table[f"count, {name}"] = {
            "permitted": lambda u=user: Document.objects.filter(permitted(u, "read", Document)).count(),
            "by hand, a queryset": lambda u=user: by_hand(u).count(),
            "django-guardian": lambda u=user: get_objects_for_user(u, "documents.view_document", Document).count(),
        }
    for what, ways in table.items():
        results = {name: act() for name, act in ways.items()}
        taken = defaultdict(list)
        for _ in range(ROUNDS):
            for name, act in ways.items():
                taken[name].append(timed(act))
        print(f"\n{what}{'' if len({str(each) for each in results.values()}) == 1 else '  (ANSWERS DIFFER)'}")
        first = None
        for name, times in taken.items():
            here, there, _ = min(times, key=lambda each: each[0] + each[1])
            first = first or here + there
            print(
                f"  {name:<22}{here * 1e6:>12,.0f} µs +{there * 1e6:>10,.0f} µs of the server, "
                f"elapsed {min(each[2] for each in times) * 1e6:>12,.0f} µs  {(here + there) / first:>8.2f} x"
            )


def _without_cache(user):
    """Return the user without the permissions that django-guardian remembers: each request has a new one."""
    for name in ("_guardian_perms_cache", "_perm_cache", "_user_perm_cache", "_group_perm_cache"):
        user.__dict__.pop(name, None)
    return user


def timed(act: Callable[[], object]) -> tuple[float, float, float]:
    """Return processor time, here and of the database's server, and elapsed time of one run, in a loop for a while."""
    began = time.perf_counter()
    act()
    times = max(1, min(1000, int(0.1 / max(time.perf_counter() - began, 1e-6))))
    here, there, elapsed = time.process_time(), server_time(), time.perf_counter()
    for _ in range(times):
        act()
    ends = time.process_time(), server_time(), time.perf_counter()
    return (ends[0] - here) / times, (ends[1] - there) / times, (ends[2] - elapsed) / times


def server_time() -> float:
    """Return the processor time of this connection's server process so far, and of the workers that have ended."""
    connection = connections["default"]
    if connection.vendor != "postgresql":
        return 0.0
    connection.ensure_connection()
    process = Path(f"/proc/{connection.connection.info.backend_pid}")
    parent = process.joinpath("stat").read_text().rpartition(")")[2].split()[1]
    of_children = Path(f"/proc/{parent}/stat").read_text().rpartition(")")[2].split()[13:15]
    own = int(process.joinpath("schedstat").read_text().split()[0]) / 1e9
    return own + sum(map(int, of_children)) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
