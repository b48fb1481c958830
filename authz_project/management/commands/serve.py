"""Prepare the database, create the first API key, and run the server."""

import errno
import fcntl
import os
import platform
import secrets
import socket
import sys
from argparse import ArgumentTypeError
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from datetime import timedelta
from functools import partial
from importlib.util import find_spec
from ipaddress import ip_address
from math import inf
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import DEFAULT_DB_ALIAS, Error, connection, connections
from django.utils.module_loading import import_string

from authz_project import environments
from authz_project.command_line import program_name, version_line
from authz_project.copies import copied, copy_of
from authz_project.database import damage, give_role_parameters, missing_on_workers, missing_parameters, refusal_of
from authz_project.keys import DEV_KEY, create_key, drop_dev_key, keep_dev_key
from authz_project.log_formats import command_line_to_json
from authz_project.management.commands.api_keys import duration
from authz_project.models import ApiKey
from authz_project.secret_key import prepare_folder, secret_that_is_set, weakness_of
from authz_project.server.listening import allow_as_many_as_possible, connections_of_worker, family_of
from authz_project.server.process import run_server
from authz_project.server.supervisor import CannotStart, Target
from authz_project.system_checks import connection_findings, migration_findings
from checks.decisions.log import opened
from policy.core.config import STANDARD_OUTPUT
from policy.core.journal import by_command
from policy.errors import AuthzError
from policy.files import text_of_file
from policy.management.command import ServiceCommand, at_least_one, counted, port_number
from policy.models import default_environment
from policy.replicas.reading import ReplicaStatus, looked_at, state_of

few = partial(at_least_one, most=1000)  # processes or threads
START_LOCK = 0x617574687A  # an arbitrary number for an advisory lock


class Command(ServiceCommand):
    help = "Prepare the database and run the server. The first start creates an API key and prints it."

    def add_arguments(self, parser):
        parser.add_argument("--host", default="127.0.0.1", help="Address to listen on (default: %(default)s).")
        parser.add_argument("--port", type=port_number, default=8080, help="Port (default: %(default)s).")
        parser.add_argument(
            "--workers", type=few, default=os.cpu_count() or 1, help="Processes (default: one per CPU)."
        )
        parser.add_argument(
            "--threads", type=few, default=4,
            help="Threads per process (default: %(default)s). All but one answer requests, with a connection each.",
        )  # fmt: skip
        metrics_port = parser.add_argument(
            "--metrics-port", type=port_number, help="Serve Prometheus metrics at /metrics on this port (default: off)."
        )
        parser.add_argument(
            "--health-port",
            type=port_number,
            help="Also serve /healthcheck and /readyz on this port, with connections of its own (default: off).",
        )
        metrics_host = parser.add_argument(
            "--metrics-host", default="127.0.0.1", help="Address for --metrics-port (default: %(default)s)."
        )
        parser.add_argument(
            "--scim", type=Path, metavar="FILE",
            help="Enable provisioning by SCIM at /scim/v2, with the mapping to facts in this file (default: off).",
        )  # fmt: skip
        parser.add_argument(
            "--no-first-key",
            action="store_true",
            help="Do not create the first API key, which would be printed. Create it with `api_keys create`.",
        )
        parser.add_argument(
            "--dev", action="store_true", help="Enable the well-known development key and POST /test_environment."
        )
        parser.add_argument(
            "--drain", type=duration, metavar="TIME", default=timedelta(),
            help="After SIGTERM, still accept requests this long while /readyz reports 503, e.g. 10s (default: 0).",
        )  # fmt: skip
        parser.add_argument(
            "--event-loop",
            action="store_true",
            help="Use the public interface of granian, the server library: slower, but also for untested versions.",
        )
        follow = parser.add_argument(
            "--follow", metavar="URL", type=url_of_service, help="Serve a copy of this service, and keep it up to date."
        )
        key = parser.add_argument(
            "--key", help="API key for --follow, or @FILE to read it from a file (default: the variable FOLLOW_KEY)."
        )
        stale_after = parser.add_argument(
            "--stale-after", type=duration, metavar="TIME",
            help="With --follow: refuse requests while the copy is older than this, e.g. 30s (default: never).",
        )  # fmt: skip
        self.only_with(metrics_host, metrics_port)
        self.only_with(key, follow)
        self.only_with(stale_after, follow)

    def handle(
        self,
        *,
        host: str,
        port: int,
        workers: int,
        threads: int,
        dev: bool,
        drain: timedelta,
        event_loop: bool,
        no_first_key: bool,
        metrics_host: str,
        metrics_port: int | None,
        health_port: int | None,
        scim: Path | None,
        follow: str | None,
        key: str | None,
        stale_after: timedelta | None,
        **options: Any,
    ) -> None:
        if follow and (dev or scim or connection.vendor != "sqlite"):
            raise CommandError("--follow needs SQLite, and cannot be combined with --dev or --scim")
        if follow:
            limit = inf if stale_after is None else stale_after.total_seconds()
            settings.FOLLOW = import_string("authz_project.server.follower.Follower")(follow, key_of(key), limit)
        if dev:
            refuse_outsiders(host)
        elif secret_that_is_set() or connection.vendor != "sqlite":
            refuse_weak_secret(secret_that_is_set())
        refuse_closed_log(settings.DECISION_LOG)
        refuse_taken_port(host, port)
        refuse_same_port(port, metrics_port, health_port)
        if metrics_port is not None:
            refuse_taken_port(metrics_host, metrics_port)
        if health_port is not None:
            refuse_taken_port(host, health_port)
            settings.HEALTH_LISTENER = host, health_port
        refuse_too_few_files(threads)
        if scim is not None:
            settings.SCIM_MAPPING = scim_mapping(scim)
        with alone() as created:
            call_command("migrate", verbosity=0)
            beside: list[Target] = [partial(settings.FOLLOW.follow, copy_of(follow).pk)] if follow else []
            said_of_keys = "" if follow else self.prepare_keys(dev, not no_first_key)
        if dev:  # workers are forked, so they have these settings
            settings.SECRET_KEY = secret_that_is_set() or secrets.token_urlsafe(48)  # lasts as long as this server
            settings.DEV_SERVER = True
        else:
            refuse_weak_secret(secret_that_is_set())  # generated, or read from beside the database
        metrics = origin_of(metrics_host, metrics_port) if metrics_port else ""
        health = origin_of(host, health_port) if health_port else ""
        self.introduce(origin_of(host, port), workers, threads, dev, metrics, health, created)
        if said_of_keys:
            self.say(said_of_keys)
        with metrics_served(metrics_host, metrics_port) if metrics_port else nullcontext() as serves_metrics:
            beside += filter(None, [serves_metrics])
            try:
                run_server(host, port, workers, threads, drain.total_seconds(), event_loop, beside)
            except CannotStart:
                raise CommandError("No worker could start. The log above tells why.") from None

    def introduce(
        self,
        origin: str,
        workers: int,
        threads: int,
        dev: bool,
        metrics: str = "",
        health: str = "",
        created: Sequence[str] = (),
    ) -> None:
        """Print versions, addresses, and what production still needs."""
        program = program_name(sys.argv[0])
        environment = copied() or default_environment()
        self.say(f"{version_line()}, Python {platform.python_version()}")
        self.say(f"  database  {environments.database_text()}")
        if created:
            self.say(f"  created   {', '.join(created)}")
        for each in replicas_that_belong_here():
            self.say(f"  replica   {each.name}, {state_of(each)}")
        policy = environments.policy_text(environment.pk, environment.slug)
        self.say(f"  policy    {policy}")
        if settings.FOLLOW:
            self.say(f"  follows   {settings.FOLLOW.url}")
        elif environment.policy_version_id is None:
            self.say(f"            load one with `{program} load_policy FILE`, or try `{program} load_example`")
        processes = f"{workers} processes" if workers != 1 else "1 process"
        self.say(f"  API       {origin}/api, {processes} of {counted(threads, 'thread')}")
        has_login = get_user_model().objects.filter(is_active=True, is_staff=True).exists()
        login = "" if has_login else f"; create a login with `{program} createsuperuser`"
        self.say(f"  admin     {origin}/admin/{login}")
        self.say(f"  docs      {origin}/docs/")
        if metrics:
            self.say(f"  metrics   {metrics}/metrics")
        if health:
            self.say(f"  health    {health}/healthcheck and /readyz")
        for warning in (*migration_findings(), *connection_findings(workers, threads)):
            self.say(f"  warning   {warning.msg} {warning.hint}")
        if unset := "" if dev else ", ".join(environments.unset()):
            self.say(f"  not set   {unset}: recommended for production, see {origin}/docs/settings/")
        self.say("  stop      with Ctrl-C or SIGTERM; requests in flight finish first")
        connections.close_all()

    def prepare_keys(self, dev: bool, makes_first: bool = True) -> str:
        """Create or delete keys as the mode requires. Return the message about them; empty if there is none."""
        if copied():
            raise CommandError("This database is the copy of a follower: start with --follow.")
        environment = default_environment()
        if dev:
            keep_dev_key(environment)
            return f"Development mode. The API key is {DEV_KEY}. Do not expose this server to other machines."
        drop_dev_key()
        if ApiKey.objects.exists():
            return ""
        if not makes_first:
            return f"No API key exists. Create one with `{program_name(sys.argv[0])} api_keys create`."
        return f"First API key, shown only once: {create_key(environment, 'first key', by=by_command('serve'))[1]}"

    def say(self, line: str) -> None:
        """Print a message, as JSON if that is the log format."""
        self.stdout.write(command_line_to_json(line.strip()) if settings.LOG_FORMAT == "json" else line)
        self.stdout.flush()


def origin_of(host: str, port: int) -> str:
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def metrics_served(host: str, port: int) -> AbstractContextManager[Target]:
    """Make all workers that start meanwhile count, and yield what serves the metrics."""
    database = environments.database_version()
    connections.close_all()
    served: AbstractContextManager[Target] = import_string("authz_project.metrics.served")(host, port, database)
    return served


def scim_mapping(file: Path) -> object:
    if not find_spec("scim2_models"):
        raise CommandError('scim2_models is not installed. Run `pip install "authz-project[scim]"`.')
    text = text_of_file(str(file))
    try:
        return import_string("authz_project.scim.mapping_of")(text)
    except AuthzError as reason:
        raise CommandError(f"{file}: {reason.message}") from None


def replicas_that_belong_here() -> list[ReplicaStatus]:
    """Check each replica. One that is unreachable or lagging may recover; one of another database is an error."""
    found = looked_at()
    for each in found:
        if each.is_stranger:
            raise CommandError(f"DATABASE_REPLICA_URL: {each.name}: {each.reason}")
    return found


@contextmanager
def alone() -> Iterator[list[str]]:
    """Lock out other servers: those that start together prepare the database one by one, however long it takes.

    Return the names of new files.
    """
    created: list[str] = []
    with ExitStack() as stack:
        if connection.vendor == "sqlite":
            database = Path(connection.settings_dict["NAME"]).absolute()
            keep_from_others(database)
            stack.enter_context(folder_lock(database))
            created = prepare_folder()
        stack.callback(connections.close_all)
        try:
            connection.ensure_connection()
        except Error as reason:
            raise CommandError(refusal_of(reason)) from None
        if connection.vendor == "sqlite" and (found := damage(connection)):
            raise CommandError(found)
        if connection.vendor == "postgresql":
            # In a transaction of its own, since a pooler may give each transaction another session.
            lock = connections.create_connection(DEFAULT_DB_ALIAS)
            stack.callback(lock.close)
            lock.set_autocommit(False)
            with lock.cursor() as cursor:
                cursor.execute("SET LOCAL statement_timeout = 0")
                cursor.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
                cursor.execute("SELECT pg_advisory_xact_lock(%s)", (START_LOCK,))
            if missing_parameters():
                role = give_role_parameters(connection.settings_dict["PARAMETERS"])
                raise CommandError(
                    f"the defaults of the database role {role} were changed for the service, but the pooler has "
                    "connections without them: run RECONNECT in PgBouncer's console, or restart it, then start again"
                )
            if missing := missing_on_workers():
                give_role_parameters(missing)
        yield created


def keep_from_others(database: Path) -> None:
    """Make the files accessible by their owner only: earlier versions may have created them readable by all."""
    for end in ("", "-wal", "-shm", ".secret"):
        path = database.with_name(database.name + end)
        with suppress(FileNotFoundError, PermissionError):
            if path.stat().st_mode & 0o007:
                path.chmod(0o600)


@contextmanager
def folder_lock(database: Path) -> Iterator[None]:
    """Lock the folder rather than the file: closing the file would release SQLite's own locks."""
    folder = os.open(database.parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def refuse_outsiders(host: str) -> None:
    """Reject an address that other machines can reach, because the development key is publicly known."""
    if not all(ip_address(address).is_loopback for address in addresses_of(host)):
        raise CommandError(f"--dev requires a loopback address: {host} can be reached by other machines.")


def addresses_of(host: str) -> set[str]:
    try:
        return {str(found[4][0]) for found in socket.getaddrinfo(host, None)}
    except (OSError, UnicodeError) as reason:  # the latter of a name that cannot be one
        why = getattr(reason, "strerror", None) or "no host can have this name"
        raise CommandError(f"Cannot listen on {host!r}: {why}. Check --host.") from None


def refuse_weak_secret(secret: str) -> None:
    if weakness := weakness_of(secret):
        raise CommandError(weakness)


def refuse_taken_port(host: str, port: int) -> None:
    """Reject a port in use: workers share their port, and would share it with another program, too."""
    addresses_of(host)
    with socket.socket(family_of(host)) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as reason:
            raise CommandError(f"Cannot listen on {host}:{port}: {reason.strerror}. Choose another port.") from None


def refuse_same_port(port: int, metrics_port: int | None, health_port: int | None) -> None:
    if port == metrics_port:
        raise CommandError("--metrics-port must differ from --port.")
    if health_port is not None and health_port in (port, metrics_port):
        raise CommandError("--health-port must differ from --port and --metrics-port.")


def refuse_too_few_files(threads: int) -> None:
    """Fail now if the limit of open files is too low, not at some later request that needs one more."""
    allow_as_many_as_possible()
    connections_of_worker(threads)


def refuse_closed_log(path: str) -> None:
    """Fail now if the decision log cannot be opened; later, the service would only log errors about it."""
    if path in ("", STANDARD_OUTPUT):
        return
    try:
        os.close(opened(path))
    except OSError as reason:
        is_unread = reason.errno == errno.ENXIO
        what = "nobody reads this pipe. Start its reader" if is_unread else f"{reason.strerror}. Create its folder"
        raise CommandError(f"Cannot write DECISION_LOG `{path}`: {what}, or set another path.") from None


def url_of_service(text: str) -> str:
    """Return the URL of a main service, without `/api`."""
    with suppress(ValueError):  # of a port or an address that cannot be one
        parts = urlsplit(text)
        is_plain = parts.port != 0 and not parts.query and not parts.username
        if parts.scheme in ("http", "https") and parts.hostname and is_plain:
            return text.rstrip("/").removesuffix("/api")
    raise ArgumentTypeError(f"must be a URL such as https://authz.example.org, not {text!r}")


def key_of(text: str | None) -> str:
    """Return the API key of a follower."""
    try:
        found = (
            Path(text[1:]).read_text() if text and text.startswith("@") else text or os.environ.get("FOLLOW_KEY", "")
        )
    except (OSError, UnicodeDecodeError) as reason:
        raise CommandError(f"Cannot read the key: {reason}.") from None
    if len(found.split()) != 1 or not found.isascii():
        raise CommandError("--follow needs an API key of the main service: set FOLLOW_KEY, or --key @FILE.")
    return found.strip()
