"""Django's settings and the service's own. Environment variables are read here only; docs/settings.md lists them."""

import math
import os
import re
import sqlite3
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import environ
from django.core.exceptions import ImproperlyConfigured


def text(name: str, default: str = "") -> str:
    """Return the value as it is. (`environ.Env` takes one that begins with `$` for the name of another variable.)"""
    return os.environ.get(name, default)


def texts(name: str, default: str = "") -> list[str]:
    """Return a list, separated by commas."""
    return [each.strip() for each in text(name, default).split(",") if each.strip()]


def number(
    name: str,
    default: float,
    what: str = "a number of seconds",
    most: float = 1_000_000,
    kind: Callable[[str], float] = float,
) -> float:
    """Return a number from 0 to `most`."""
    found = text(name).strip()
    try:
        value = kind(found) if found else float(default)
    except (ValueError, OverflowError):
        value = math.nan
    if not 0 <= value <= most:
        raise ImproperlyConfigured(f"{name} must be {what} from 0 to {most:,}, not {found!r}")
    return value


def whole(name: str, default: int) -> int:
    """Return a number of bytes, days or things."""
    return int(number(name, default, "a whole number", 10**15, int))


def share(name: str, default: float) -> float:
    return number(name, default, "a share", 1)


def boolean(name: str, default: bool = False) -> bool:
    return choice(name, str(int(default)), "0", "1", "false", "true") in ("1", "true")


def choice(name: str, default: str, *choices: str) -> str:
    """Return one of the choices, whichever case it is written in."""
    wanted = text(name).strip() or default
    found = next((each for each in choices if each.lower() == wanted.lower()), None)
    if found is None:
        raise ImproperlyConfigured(f"{name} must be {', '.join(choices[:-1])} or {choices[-1]}, not {wanted!r}")
    return found


def public_url() -> str:
    """Return the service's URL; `forwarded` if a proxy's headers have it, empty if it is that of the request."""
    found = text("PUBLIC_URL").strip().rstrip("/")
    if found not in ("", "forwarded") and not found.startswith(("http://", "https://")):
        raise ImproperlyConfigured(f"PUBLIC_URL must be `forwarded` or like https://authz.example.org, not {found!r}")
    return found


class Rate(NamedTuple):
    """A number of requests in a number of seconds."""

    requests: int
    seconds: int

    def __str__(self) -> str:
        return f"{self.requests:,} requests in {'a second' if self.seconds == 1 else f'{self.seconds:,} seconds'}"


def rate_limit() -> Rate | None:
    """Return how many requests a key may send to each process; None if there is no limit."""
    rate = text("RATE_LIMIT").strip()
    if rate in ("", "0"):
        return None
    found = re.fullmatch(r"([1-9][0-9]{0,8})/([smh])", rate, re.ASCII)
    if not found:
        raise ImproperlyConfigured(f"RATE_LIMIT must be a rate such as 1000/s, 100/m or 5000/h, or 0, not {rate!r}")
    return Rate(int(found[1]), {"s": 1, "m": 60, "h": 3600}[found[2]])


# ---- HTTP -------------------------------------------------------------------------------------------

ROOT_URLCONF = "authz_project.urls"
WSGI_APPLICATION = "authz_project.wsgi.application"
ALLOWED_HOSTS = texts("ALLOWED_HOSTS", "*")  # checked by `middleware.refuse_foreign`
PUBLIC_URL = public_url()
# If the admin is served over HTTPS, browsers must not send its cookies over plain HTTP.
_is_forwarded = PUBLIC_URL == "forwarded"
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = _is_forwarded or PUBLIC_URL.startswith("https://")
CLIENT_ADDRESS_HEADER = text("CLIENT_ADDRESS_HEADER").strip()
# The first two expect Django's middleware: here, `wsgi` sets the headers, and `AdminCsrf` is the middleware. authz.W001
# says what the third does.
SILENCED_SYSTEM_CHECKS = ["security.W001", "security.W003", "security.W010"]
TIME_ZONE = "UTC"
LANGUAGE_CODE = "en"
FORMAT_MODULE_PATH = "authz_project.formats"
APPEND_SLASH = False

# `serve` sets these, by its options.
DEV_SERVER = False
SCIM_MAPPING: Any = None  # an `authz_project.scim.ScimMapping`
METRICS_FOLDER = ""  # where workers write their metrics
HEALTH_LISTENER: tuple[str, int] | None = None  # host and port of health checks
FOLLOW: Any = None  # the `Follower` of `authz_project.server.follower`

# ---- database ---------------------------------------------------------------------------------------

STATEMENT_TIMEOUT = number("STATEMENT_TIMEOUT", 5)  # seconds
WRITE_TIMEOUT = number("WRITE_TIMEOUT", 30)  # seconds


class ExistingFile(sqlite3.Connection):
    """A connection that does not create the file, so that commands leave no empty database where they run.

    `serve` and `migrate` create the file first, with `secret_key.prepare_folder`.
    """

    def __init__(self, database: str, *args: Any, **options: Any) -> None:
        if database != ":memory:" and not database.startswith("file:"):
            database = f"{Path(database).absolute().as_uri()}?mode=rw"
        super().__init__(database, *args, **options | {"uri": True})


SQLITE_OPTIONS = {
    "factory": ExistingFile,
    # Writers take the lock when they begin. Otherwise they could fail halfway because of another writer.
    "transaction_mode": "IMMEDIATE",
    "timeout": WRITE_TIMEOUT or 2_000_000.0,  # the maximum of SQLite
    "cached_statements": 1000,
    "init_command": (
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA temp_store = MEMORY;"
        "PRAGMA cache_size = -1000"  # KiB for each connection; more costs memory and saves no time that can be measured
    ),
}
POSTGRESQL_OPTIONS = {
    "server_side_binding": True,  # needed for prepared statements
    "prepare_threshold": 2,
    "connect_timeout": 3,
    # Detect a server that disappeared: unacknowledged data closes a connection, and idle ones are probed.
    "tcp_user_timeout": 10_000,  # milliseconds
    "keepalives_idle": 30,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "application_name": "authz",
}
# Planning costs more than execution, so plan once for all values (generic plan). Joins are written in the order of
# execution: statistics of the single fact table do not tell how many rows there are of each kind of fact.
_parameters = {
    "plan_cache_mode": "force_generic_plan",
    "jit": "off",
    "join_collapse_limit": "1",
    "enable_memoize": "off",
    "statement_timeout": f"{int(STATEMENT_TIMEOUT * 1000)}ms",
}
POSTGRESQL_OPTIONS["options"] = " ".join(f"-c {name}={value}" for name, value in _parameters.items())
# Behind a pooler that gives each transaction any of its connections, a connection has no parameters of its own: `serve`
# gives them to the role instead (see `authz_project/database.py`). The driver prepares nothing there; the service does
# if the pooler can (`keeps_prepared` in `policy/core/journal.py`).
_pooled = {"options": "", "prepare_threshold": None}


def database_from_url(url: str, name: str = "DATABASE_URL") -> dict:
    """Return Django's settings of the database at the URL, with the options that the service needs."""
    if not url.startswith(("sqlite:///", "postgres://", "postgresql://")):
        raise ImproperlyConfigured(f"{name} must begin with sqlite:/// or postgres://")
    try:
        config = environ.Env.db_url_config(url)
    except ValueError as reason:
        raise ImproperlyConfigured(f"{name} is not a valid URL: {reason}") from None
    if config["ENGINE"] == "django.db.backends.sqlite3":
        if config["NAME"] in ("", ":memory:"):
            raise ImproperlyConfigured("DATABASE_URL must name a file, such as sqlite:///authz.sqlite3")
        if not (folder := Path(config["NAME"]).absolute().parent).is_dir():
            raise ImproperlyConfigured(f"DATABASE_URL: folder `{folder}` does not exist. Create it first.")
    options = SQLITE_OPTIONS if config["ENGINE"] == "django.db.backends.sqlite3" else POSTGRESQL_OPTIONS
    own = dict(config.get("OPTIONS", {}))
    match own.pop("pool_mode", "session"):
        case "transaction" if options is POSTGRESQL_OPTIONS and name == "DATABASE_URL":
            options, config = {**options, **_pooled}, {**config, "PARAMETERS": _parameters}
        case "transaction":
            raise ImproperlyConfigured(f"{name} cannot have pool_mode=transaction; connect to the server directly")
        case "session":
            pass
        case mode:
            raise ImproperlyConfigured(f"{name}: pool_mode must be session or transaction, not {mode}")
    if "," in config["HOST"]:  # of several servers, connect to the one that accepts writes
        options = {**options, "target_session_attrs": "read-write"}
    # Each thread keeps its connection and its prepared statements.
    return {**config, "CONN_MAX_AGE": None, "OPTIONS": options | own}


DATABASE_ROUTERS = ["authz_project.spaces.HomeRouter"]
DATABASES = {"default": database_from_url(text("DATABASE_URL") or f"sqlite:///{Path.cwd() / 'authz.sqlite3'}")}

# Other servers for spaces, by name: `DATABASE_URLS=eu=postgres://…,us=postgres://…`.
DATABASE_URLS = {
    name.strip(): database_from_url(url, "DATABASE_URLS")
    for name, _, url in (each.partition("=") for each in re.split(r",(?=\w+=)", text("DATABASE_URLS")) if each)
}

# ---- replicas (PostgreSQL only) ---------------------------------------------------------------------

REPLICA_MAX_LAG = number("REPLICA_MAX_LAG", 10)  # seconds
REPLICA_READS = choice("REPLICA_READS", "after-writes", "after-writes", "positioned")
REPLICA_TIMEOUT = STATEMENT_TIMEOUT / 2  # then the primary is asked, with the whole STATEMENT_TIMEOUT
if REPLICA_MAX_LAG < 3:
    raise ImproperlyConfigured("REPLICA_MAX_LAG must be at least 3 seconds, because lag is measured once a second")


def replicas_from_urls(listed: str, primary: dict) -> list[dict]:
    """Return Django's settings of the databases at the URLs, which are separated by commas."""
    urls = [url.strip() for url in re.split(r",(?=\s*[A-Za-z]+:/)", listed.strip(" ,")) if url.strip()]
    if not urls:
        return []
    if primary["ENGINE"] != "django.db.backends.postgresql":
        raise ImproperlyConfigured("DATABASE_REPLICA_URL requires a DATABASE_URL that begins with postgres://")
    found = []
    for url in urls:
        if not url.startswith(("postgres://", "postgresql://")):
            raise ImproperlyConfigured("DATABASE_REPLICA_URL must be postgres:// URLs, separated by commas")
        config = database_from_url(url, "DATABASE_REPLICA_URL")
        if "," in config["HOST"]:
            raise ImproperlyConfigured("DATABASE_REPLICA_URL must name one host in each URL; give each replica its own")
        limit = f"-c statement_timeout={math.ceil(REPLICA_TIMEOUT * 1000)}"
        options = config["OPTIONS"]
        usual = {"connect_timeout": 2, "tcp_user_timeout": 5000, "target_session_attrs": "any"}
        found.append({**config, "OPTIONS": {**options, **usual, "options": f"{options['options']} {limit}"}})
    return found


_replicas = replicas_from_urls(text("DATABASE_REPLICA_URL"), DATABASES["default"])
DATABASES |= {f"replica{place}": config for place, config in enumerate(_replicas, 1)}
REPLICAS = {  # host and port by Django's name
    f"replica{place}": f"{config['HOST'] or 'this machine'}:{config['PORT'] or 5432}"
    for place, config in enumerate(_replicas, 1)
}
if REPLICAS:  # a primary that became a standby must not be used as one
    DATABASES["default"]["OPTIONS"].setdefault("target_session_attrs", "read-write")

# ---- secrets ------------------------------------------------------------------------------------------


def secret_file(database: Path) -> Path:
    """Return the path of the secret of an SQLite database."""
    return database.with_name(database.name + ".secret")


def secret_beside(database: Path) -> str:
    """Return the secret beside an SQLite file; empty until `serve` or `migrate` creates it."""
    try:
        return secret_file(database).read_text().strip()
    except FileNotFoundError:
        return ""
    except UnicodeDecodeError:
        raise ImproperlyConfigured(f"{secret_file(database)} is not a secret; restore it from a backup") from None


SECRET_KEY = text("SECRET_KEY")
if not SECRET_KEY and DATABASES["default"]["ENGINE"] == "django.db.backends.sqlite3":
    SECRET_KEY = secret_beside(Path(DATABASES["default"]["NAME"]).absolute())
    if not SECRET_KEY:
        SILENCED_SYSTEM_CHECKS.append("security.W009")  # it is created before it is used

# ---- sign-in to the admin by OpenID Connect -----------------------------------------------------------


def roles(entries: list[str]) -> list[tuple[str, str]]:
    """Return pairs of a provider's group and the admin's group that it gives, such as `policy-team=publisher`."""
    pairs = [(group.strip(), role.strip()) for group, _, role in (each.rpartition("=") for each in entries)]
    if wrong := [each for each, pair in zip(entries, pairs) if not all(pair)]:
        raise ImproperlyConfigured(f"OIDC_ROLES must be pairs such as policy-team=publisher, not {wrong[0]!r}")
    return pairs


OIDC_ISSUER = text("OIDC_ISSUER").strip()
OIDC_ROLES = roles(texts("OIDC_ROLES"))
# As mozilla-django-oidc names them.
OIDC_RP_CLIENT_ID = text("OIDC_RP_CLIENT_ID")
OIDC_RP_CLIENT_SECRET = text("OIDC_RP_CLIENT_SECRET")
OIDC_RP_SCOPES = text("OIDC_RP_SCOPES", "openid email profile")
AUTHENTICATION_BACKENDS = ["django.contrib.auth.backends.ModelBackend"]
if OIDC_ISSUER:
    if not re.match(r"https://|http://(localhost|127\.0\.0\.1)[:/]", OIDC_ISSUER):
        raise ImproperlyConfigured(f"OIDC_ISSUER must begin with https://, not {OIDC_ISSUER!r}")
    if not (OIDC_RP_CLIENT_ID and OIDC_RP_CLIENT_SECRET and OIDC_ROLES):
        raise ImproperlyConfigured("OIDC_ISSUER requires OIDC_RP_CLIENT_ID, OIDC_RP_CLIENT_SECRET and OIDC_ROLES")
    if not find_spec("mozilla_django_oidc"):
        raise ImproperlyConfigured('mozilla_django_oidc is not installed. Run `pip install "authz-project[sso]"`.')
    AUTHENTICATION_BACKENDS.append("authz_project.sso.ProviderBackend")

# ---- limits; 0 means no limit -----------------------------------------------------------------------

DATA_UPLOAD_MAX_MEMORY_SIZE = 10 * 1024 * 1024  # of any request body
MEMORY_BUDGET = whole("MEMORY_BUDGET", 140_000_000)  # bytes per process, for all concurrent requests
# Maximum share of a process's connections per client address. Behind a proxy, all have the same address.
CONNECTIONS_PER_ADDRESS = share("CONNECTIONS_PER_ADDRESS", 0 if CLIENT_ADDRESS_HEADER or _is_forwarded else 0.25)
MAX_DELETE_MATCHES = whole("MAX_DELETE_MATCHES", 0)
RATE_LIMIT = rate_limit()
HISTORY_DAYS = whole("HISTORY_DAYS", 0)
ANSWER_CACHE = whole("ANSWER_CACHE", 32 * 1024 * 1024)  # bytes per process; 0 disables the cache

# Reject context facts that the policy doesn't use, and facts to be stored with roles or relations that it doesn't know.
STRICT_FACTS = boolean("STRICT_FACTS")

# ---- logs -------------------------------------------------------------------------------------------

LOG_FORMAT = choice("LOG_FORMAT", "plain", "plain", "json")
SLOW_QUESTION_MS = whole("SLOW_QUESTION_MS", 500)  # log requests that take longer; 0 means never
DECISION_LOG = text("DECISION_LOG").strip()  # a file, or - for standard output; empty is off
DECISION_LOG_SAMPLE = share("DECISION_LOG_SAMPLE", 1)  # of all decisions
DECISION_LOG_DENIED = boolean("DECISION_LOG_DENIED")  # log all denied decisions, whatever the sample
DECISION_LOG_CONTEXT = boolean("DECISION_LOG_CONTEXT", default=True)  # log context facts

# ---- Django -----------------------------------------------------------------------------------------

INSTALLED_APPS = [
    "authz_project",  # first, so that its templates override
    "authz_project.apps.ConsoleConfig",  # imports no pages; `urls` does, which commands don't need
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "rest_framework",
    "policy",
    "facts",
    "checks",
    "localsql",
]
MIDDLEWARE = [
    "authz_project.middleware.request_ids",
    "authz_project.middleware.refuse_foreign",
    "authz_project.middleware.body_limit",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "authz_project.middleware.AdminSessions",
    "authz_project.middleware.AdminCsrf",
    "authz_project.middleware.AdminLogins",
    "authz_project.middleware.AdminMessages",
    "authz_project.middleware.admin_spaces",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator"},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]
LOGIN_REDIRECT_URL = "admin:index"  # after a login whose `next` is on another site
STATIC_URL = "static/"
WHITENOISE_USE_FINDERS = True  # served from the packages, without collectstatic

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [],  # each endpoint has its own
    "DEFAULT_PERMISSION_CLASSES": [],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["rest_framework.parsers.JSONParser"],
    "UNAUTHENTICATED_USER": None,
}

# OpenTelemetry's standard variables. Its library reads the others.
OTEL_ENDPOINT = text("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") or text("OTEL_EXPORTER_OTLP_ENDPOINT")
OTEL_PROTOCOL = text("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL") or text("OTEL_EXPORTER_OTLP_PROTOCOL")
if text("OTEL_SDK_DISABLED").strip().lower() == "true" or text("OTEL_TRACES_EXPORTER").strip() not in ("", "otlp"):
    OTEL_ENDPOINT = ""

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"()": f"authz_project.log_formats.{LOG_FORMAT.title()}"}},
    "filters": {"briefly": {"()": "authz_project.log_formats.UntrustedLogFilter"}},
    "handlers": {
        "console": {"class": "authz_project.log_formats.LineHandler", "formatter": "line"},
        "briefly": {"class": "authz_project.log_formats.LineHandler", "formatter": "line", "filters": ["briefly"]},
    },
    "root": {
        "handlers": ["console"],
        "level": choice("LOG_LEVEL", "WARNING", "DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"),
    },
    # Errors of callers are reported in responses, and the service's own are logged there.
    "loggers": {
        "django": {"handlers": []},
        "django.request": {"level": "CRITICAL"},
        # Rejected requests, which anyone can send: unknown hosts, too many parameters, unsafe redirects.
        "django.security": {"handlers": ["briefly"], "propagate": False},
        "django.security.csrf": {"level": "CRITICAL"},  # the same, and it would log whole paths
        "sqlglot": {"level": "ERROR"},  # its warnings contain parts of a caller's SQL
        "_granian": {"handlers": ["console"], "level": "ERROR", "propagate": False},
        "granian.access": {"handlers": [], "level": "CRITICAL"},
    },
}
