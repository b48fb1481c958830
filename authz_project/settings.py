"""Every setting. The environment is read here and nowhere else."""

import math
import os
import re
import sqlite3
from pathlib import Path
from typing import Any, NamedTuple, overload

import environ
from django.core.exceptions import ImproperlyConfigured

env = environ.Env()

LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
LOG_FORMATS = ("plain", "json")
LARGEST = {float: 1_000_000, int: 10**15}  # seconds; bytes, or things


@overload
def number(name: str, default: float) -> float: ...
@overload
def number(name: str, default: int, kind: type[int]) -> int: ...
def number(name: str, default: float, kind: type[int] | type[float] = float) -> float:
    """Return a setting that is a number, 0 or more."""
    text = env.str(name, default="").strip()
    try:
        value = kind(text) if text else kind(default)
    except (ValueError, OverflowError):
        value = math.nan
    if not 0 <= value <= LARGEST[kind]:
        what = "a number of seconds" if kind is float else "a whole number"
        raise ImproperlyConfigured(f"{name} must be {what} from 0 to {LARGEST[kind]}, not {text!r}")
    return value


def truth(name: str, default: bool = False) -> bool:
    """Return a setting that is on or off."""
    text = env.str(name, default="").strip().lower()
    if text not in ("", "0", "1", "false", "true"):
        raise ImproperlyConfigured(f"{name} must be 0 or 1, not {text!r}")
    return text in ("1", "true") if text else default


def origins(name: str) -> list[str]:
    """Return a setting that is origins, by commas."""
    found = env.list(name, default=[])
    if wrong := [each for each in found if not each.startswith(("http://", "https://"))]:
        raise ImproperlyConfigured(f"{name} must be origins such as https://authz.example.org, not {wrong[0]!r}")
    return found


def log_level() -> str:
    level = env.str("LOG_LEVEL", default="").strip().upper() or "WARNING"
    if level not in LOG_LEVELS:
        raise ImproperlyConfigured(f"LOG_LEVEL must be one of {', '.join(LOG_LEVELS)}, not {level!r}")
    return level


def log_format() -> str:
    name = env.str("LOG_FORMAT", default="").strip().lower() or "plain"
    if name not in LOG_FORMATS:
        raise ImproperlyConfigured(f"LOG_FORMAT must be {' or '.join(LOG_FORMATS)}, not {name!r}")
    return name


def share(name: str, default: float) -> float:
    text = env.str(name, default="").strip()
    try:
        value = float(text) if text else default
    except ValueError:
        value = math.nan
    if not 0 <= value <= 1:
        raise ImproperlyConfigured(f"{name} must be a share from 0 to 1, not {text!r}")
    return value


class Rate(NamedTuple):
    """So many requests in so many seconds."""

    requests: int
    seconds: int

    def __str__(self) -> str:
        return f"{self.requests:,} requests in {'a second' if self.seconds == 1 else f'{self.seconds:,} seconds'}"


PERIODS = {"s": 1, "m": 60, "h": 3600}


def rate_limit() -> Rate | None:
    """Return how many requests a key may send to a process; None where there is no limit."""
    text = env.str("RATE_LIMIT", default="").strip()
    if text in ("", "0"):
        return None
    found = re.fullmatch(r"([1-9][0-9]{0,8})/([smh])", text, re.ASCII)
    if not found:
        raise ImproperlyConfigured(
            f"RATE_LIMIT must be requests in a second, minute or hour, as 1000/s, 100/m or 5000/h, or 0, not {text!r}"
        )
    return Rate(int(found[1]), PERIODS[found[2]])


# ---- who we are -------------------------------------------------------------------------------------

DEBUG = False
ROOT_URLCONF = "authz_project.urls"
WSGI_APPLICATION = "authz_project.wsgi.application"
ALLOWED_HOSTS = env.list("ALLOWED_HOSTS", default=["*"])  # held by `middleware.refuse_foreign`; `--dev` has its own
CSRF_TRUSTED_ORIGINS = origins("CSRF_TRUSTED_ORIGINS")
# A browser that reaches the admin over HTTPS is not to send its cookies over anything else.
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = any(origin.startswith("https://") for origin in CSRF_TRUSTED_ORIGINS)
CLIENT_ADDRESS_HEADER = env.str("CLIENT_ADDRESS_HEADER", default="").strip()
# What these two look for by name is there under another: `wsgi` sets headers, `AdminCsrf` is the middleware.
SILENCED_SYSTEM_CHECKS = ["security.W001", "security.W003"]
# Where we are, as AuthZEN's metadata says it: here, or where requests are sent to, by the word of a trusted proxy.
PUBLIC_URL = next(iter(origins("PUBLIC_URL")), "").rstrip("/")
TRUST_PROXY = truth("TRUST_PROXY")
USE_TZ = True
TIME_ZONE = "UTC"
LANGUAGE_CODE = "en"
APPEND_SLASH = False
DEFAULT_AUTO_FIELD = "django.db.models.AutoField"

# `serve --dev` passes its own process id, and only the workers that it starts have it as their parent:
# the variable left over in a shell or a container turns nothing on.
DEV_SERVER_VARIABLE = "AUTHZ_DEV_SERVER"
DEV_SERVER = os.environ.get(DEV_SERVER_VARIABLE) in (str(os.getppid()), str(os.getpid()))

# `serve` likewise says where its workers put their metrics. There is such a folder as long as that server runs.
METRICS_FOLDER_VARIABLE = "AUTHZ_METRICS_FOLDER"
METRICS_FOLDER = os.environ.get(METRICS_FOLDER_VARIABLE, "")

# `serve --health-port` likewise tells its workers where to answer health checks, as HOST PORT.
HEALTH_LISTENER_VARIABLE = "AUTHZ_HEALTH_LISTENER"
HEALTH_LISTENER = os.environ.get(HEALTH_LISTENER_VARIABLE, "")

# `serve` likewise gives its workers a file to agree by on whose turn it is: one that it has open, and nobody else sees.
TURNS_FILE_VARIABLE = "AUTHZ_TURNS_FILE"
_turns_file = os.environ.get(TURNS_FILE_VARIABLE, "")
TURNS_FILE = _turns_file if _turns_file.startswith(f"/proc/{os.getppid()}/fd/") else ""

# ---- where things are kept ---------------------------------------------------------------------------

STATEMENT_TIMEOUT = number("STATEMENT_TIMEOUT", 5)  # seconds
PLANNING_TIMEOUT = number("PLANNING_TIMEOUT", 1)  # seconds of processor time, for one new kind of question
WRITE_TIMEOUT = number("WRITE_TIMEOUT", 30)  # seconds
_FOR_EVER = 2_000_000.0  # seconds, as far as SQLite counts


class ExistingFile(sqlite3.Connection):
    """A connection that makes no database: a command that only asks is not to leave an empty one where it runs.

    `serve` and `migrate` make the file first, by `secret_key.prepare_folder`.
    """

    def __init__(self, database: str, *args: Any, **options: Any) -> None:
        if database != ":memory:" and not database.startswith("file:"):
            database = f"{Path(database).absolute().as_uri()}?mode=rw"
        super().__init__(database, *args, **options | {"uri": True})


SQLITE_OPTIONS = {
    "factory": ExistingFile,
    # Writers take the lock when they begin, so that none fails half way on another's.
    "transaction_mode": "IMMEDIATE",
    "timeout": WRITE_TIMEOUT or _FOR_EVER,
    "cached_statements": 1000,
    "init_command": "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA temp_store = MEMORY",
}
POSTGRESQL_OPTIONS = {
    "server_side_binding": True,  # what makes statements preparable
    "prepare_threshold": 2,
    "connect_timeout": 3,
    # A machine that is gone without a word is noticed: by what was sent and not taken, and by asking whoever is idle.
    "tcp_user_timeout": 10_000,  # milliseconds
    "keepalives_idle": 30,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "application_name": "authz",
    # Planning costs more than running: plan once, without guesses from the values. Joins are written in the order
    # to run in, from what is given on: how many rows there are for it, statistics of the one fact table cannot tell.
    "options": " ".join(
        f"-c {option}"
        for option in (
            "plan_cache_mode=force_generic_plan",
            "jit=off",
            "join_collapse_limit=1",
            "enable_memoize=off",
            f"statement_timeout={int(STATEMENT_TIMEOUT * 1000)}",
        )
    ),
}


def database_from_url(url: str, name: str = "DATABASE_URL") -> dict:
    """Return Django's settings of the database at the URL, with what this service needs of it."""
    if not url.startswith(("sqlite:///", "postgres://", "postgresql://")):
        raise ImproperlyConfigured(f"{name} must begin with sqlite:/// or postgres://")
    try:
        config = env.db_url_config(url)
    except ValueError as reason:
        raise ImproperlyConfigured(f"{name} cannot be read: {reason}") from None
    if config["ENGINE"] == "django.db.backends.sqlite3":
        if config["NAME"] in ("", ":memory:"):
            raise ImproperlyConfigured("DATABASE_URL must name a file, as sqlite:///authz.sqlite3")
        if not Path(config["NAME"]).absolute().parent.is_dir():
            raise ImproperlyConfigured("DATABASE_URL names a file in a folder that does not exist")
    options = SQLITE_OPTIONS if config["ENGINE"] == "django.db.backends.sqlite3" else POSTGRESQL_OPTIONS
    if "," in config["HOST"]:  # of several servers, the one that takes changes
        options = {**options, "target_session_attrs": "read-write"}
    # Each thread keeps its connection, with the statements that are prepared on it.
    return {**config, "CONN_MAX_AGE": None, "OPTIONS": options | config.get("OPTIONS", {})}


DATABASE_URL = env.str("DATABASE_URL", default="") or f"sqlite:///{Path.cwd() / 'authz.sqlite3'}"
DATABASES = {"default": database_from_url(DATABASE_URL)}

# ---- replicas: PostgreSQL's standbys, which answer questions -------------------------------------------

REPLICA_MAX_LAG = number("REPLICA_MAX_LAG", 10)  # seconds
REPLICA_READS = env.str("REPLICA_READS", default="").strip() or "after-writes"
# What a replica does not answer in half of a question's time, the primary is asked, which has all of it.
REPLICA_TIMEOUT = STATEMENT_TIMEOUT / 2
if REPLICA_READS not in ("after-writes", "positioned"):
    raise ImproperlyConfigured(f"REPLICA_READS must be after-writes or positioned, not {REPLICA_READS!r}")
if REPLICA_MAX_LAG < 3:
    raise ImproperlyConfigured("REPLICA_MAX_LAG must be at least 3 seconds: servers are looked at once a second")


def replicas_from_urls(text: str, primary: dict) -> list[dict]:
    """Return Django's settings of the databases at the URLs, which commas part."""
    urls = [url.strip() for url in re.split(r",(?=\s*[A-Za-z]+:/)", text.strip(" ,")) if url.strip()]
    if not urls:
        return []
    if primary["ENGINE"] != "django.db.backends.postgresql":
        raise ImproperlyConfigured("DATABASE_REPLICA_URL needs a DATABASE_URL that begins with postgres://")
    found = []
    for url in urls:
        if not url.startswith(("postgres://", "postgresql://")):
            raise ImproperlyConfigured("DATABASE_REPLICA_URL must be URLs that begin with postgres://, by commas")
        config = database_from_url(url, "DATABASE_REPLICA_URL")
        if "," in config["HOST"]:
            raise ImproperlyConfigured("DATABASE_REPLICA_URL must name one host in each URL; give each replica its own")
        limit = f"-c statement_timeout={math.ceil(REPLICA_TIMEOUT * 1000)}"
        options = config["OPTIONS"]
        usual = {"connect_timeout": 2, "tcp_user_timeout": 5000, "target_session_attrs": "any"}
        found.append({**config, "OPTIONS": {**options, **usual, "options": f"{options['options']} {limit}"}})
    return found


_replicas = replicas_from_urls(env.str("DATABASE_REPLICA_URL", default=""), DATABASES["default"])
DATABASES |= {f"replica{place}": config for place, config in enumerate(_replicas, 1)}
REPLICAS = {  # by Django's name for it, where it is
    f"replica{place}": f"{config['HOST'] or 'this machine'}:{config['PORT'] or 5432}"
    for place, config in enumerate(_replicas, 1)
}
if REPLICAS:  # a server that has become a standby is not to pass for the primary
    DATABASES["default"]["OPTIONS"].setdefault("target_session_attrs", "read-write")


def is_here(database: dict) -> bool:
    """Say whether the database is on this machine, and shares its processors."""
    options = database["OPTIONS"]
    hosts = str(options.get("hostaddr") or options.get("host") or database["HOST"]).split(",")
    is_near = all(host in ("", "localhost", "::1") or host.startswith(("/", "127.")) for host in hosts)
    return is_near and "service" not in options


# Statements that take long and run at the same time; 0 is no limit. A processor is left to the others, where all of
# them are this machine's.
_all_but_one = max(1, (os.cpu_count() or 1) - 1)
LONG_AT_ONCE = number("LONG_AT_ONCE", _all_but_one if is_here(DATABASES["default"]) and not REPLICAS else 0, int)

# ---- secrets ------------------------------------------------------------------------------------------


def secret_file(database: Path) -> Path:
    """Return where the secret of an SQLite database is kept: beside it."""
    return database.with_name(database.name + ".secret")


def secret_beside(database: Path) -> str:
    """Return the secret kept next to an SQLite file; nothing before `serve` or `migrate` has made it."""
    try:
        return secret_file(database).read_text().strip()
    except FileNotFoundError:
        return ""


SECRET_KEY = env.str("SECRET_KEY", default="")
if not SECRET_KEY and DATABASES["default"]["ENGINE"] == "django.db.backends.sqlite3":
    SECRET_KEY = secret_beside(Path(DATABASES["default"]["NAME"]).absolute())
    if not SECRET_KEY:
        SILENCED_SYSTEM_CHECKS.append("security.W009")  # there will be one before it is used

# ---- limits: 0 is none --------------------------------------------------------------------------------

MAX_BODY_BYTES = number("MAX_BODY_BYTES", 10 * 1024 * 1024, int)
MEMORY_BUDGET = number("MEMORY_BUDGET", 140_000_000, int)  # bytes of each process, for all that runs at a time
BODY_TIMEOUT = number("BODY_TIMEOUT", 10)  # seconds
PATIENCE = number("PATIENCE", 1)  # seconds, most of which a line may be long before who comes is told to come again
DRAIN_SECONDS = number("DRAIN_SECONDS", 0)  # from a signal to stop on, for which requests are still taken
# Of the connections that a process takes, the share that one client address may hold. All of a proxy's come from it.
CONNECTIONS_PER_ADDRESS = share("CONNECTIONS_PER_ADDRESS", 0 if CLIENT_ADDRESS_HEADER or TRUST_PROXY else 0.25)
MAX_BATCH_ENTRIES = number("MAX_BATCH_ENTRIES", 0, int)
MAX_DELETE_MATCHES = number("MAX_DELETE_MATCHES", 0, int)
MAX_CONTEXT_FACTS = number("MAX_CONTEXT_FACTS", 0, int)
RATE_LIMIT = rate_limit()
HISTORY_DAYS = number("HISTORY_DAYS", 0, int)
ANSWER_CACHE = number("ANSWER_CACHE", 32 * 1024 * 1024, int)  # bytes of each process; here 0 is none at all
DATA_UPLOAD_MAX_MEMORY_SIZE = MAX_BODY_BYTES or None

# ---- what is refused ----------------------------------------------------------------------------------

# A context fact that the policy has no use for: refused, or left out of account with a word.
STRICT_CONTEXT_FACTS = truth("STRICT_CONTEXT_FACTS")

# ---- what is written down -----------------------------------------------------------------------------

DECISION_LOG = env.str("DECISION_LOG", default="").strip()  # a file, or - for the standard output; none where empty
DECISION_LOG_SAMPLE = share("DECISION_LOG_SAMPLE", 1)  # of all questions
DECISION_LOG_DENIED = truth("DECISION_LOG_DENIED")  # all that are denied, whatever the sample
DECISION_LOG_CONTEXT = truth("DECISION_LOG_CONTEXT", default=True)  # with their context facts

# ---- the parts ----------------------------------------------------------------------------------------

INSTALLED_APPS = [
    "authz_project",  # first, for its templates to come before those they extend
    "authz_project.console.apps.ConsoleConfig",  # `urls` finds the pages: commands have no use for them
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
LOGIN_REDIRECT_URL = "admin:index"  # where the login leads if `next` is another site's
STATIC_URL = "static/"
STATIC_ROOT = None
WHITENOISE_USE_FINDERS = True  # served from the packages: nothing to collect

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [],  # each route has its endpoint's
    "DEFAULT_PERMISSION_CLASSES": [],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["rest_framework.parsers.JSONParser"],
    "UNAUTHENTICATED_USER": None,
}

# Uploading a policy runs its tests, and running is for the app above: it is named here, not imported.
POLICY_TEST_RUNNER = "checks.testing.run"
# Which rules its tests exercise, likewise.
POLICY_COVERAGE = "checks.testing.measured"

# Statements check the caller's key; what makes one good, the app above knows that keeps them.
KEY_CHECK = "authz_project.keys.CHECK"

# What a policy no longer accepts is counted where facts are stored: in the app above, likewise.
FACT_AUDIT = "facts.accept.ignored_facts"

LOG_FORMAT = log_format()
ACCESS_LOG = truth("ACCESS_LOG")  # a line for each request
SLOW_QUESTION_MS = number("SLOW_QUESTION_MS", 500, int)  # from so many on, a question is logged; 0 is never

# Traces, by the names that OpenTelemetry has for everybody. What else it has, its own library reads.
OTEL_ENDPOINT = env.str("OTEL_EXPORTER_OTLP_ENDPOINT", default="")
OTEL_ENDPOINT = env.str("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", default="") or OTEL_ENDPOINT
OTEL_PROTOCOL = env.str("OTEL_EXPORTER_OTLP_PROTOCOL", default="") or "http/protobuf"
OTEL_PROTOCOL = env.str("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", default="") or OTEL_PROTOCOL
OTEL_TRACES_EXPORTER = env.str("OTEL_TRACES_EXPORTER", default="").strip() or "otlp"
OTEL_SDK_DISABLED = env.str("OTEL_SDK_DISABLED", default="").strip().lower() == "true"

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"()": f"authz_project.logs.formats.{LOG_FORMAT.title()}"}},
    "filters": {"briefly": {"()": "authz_project.logs.formats.Briefly"}},
    "handlers": {
        "console": {"class": "authz_project.logs.formats.WholeLines", "formatter": "line"},
        "briefly": {"class": "authz_project.logs.formats.WholeLines", "formatter": "line", "filters": ["briefly"]},
    },
    "root": {"handlers": ["console"], "level": log_level()},
    # A caller's mistake is told to the caller, and ours is logged where it is answered.
    "loggers": {
        "django": {"handlers": []},
        "django.request": {"level": "CRITICAL"},
        # Refused requests, which anybody may send: foreign hosts, too many parameters, unsafe redirects.
        "django.security": {"handlers": ["briefly"], "propagate": False},
        "django.security.csrf": {"level": "CRITICAL"},  # likewise, and it would name whole paths
        "sqlglot": {"level": "ERROR"},  # its warnings have pieces of a caller's SQL
        "_granian": {"handlers": ["console"], "level": "ERROR", "propagate": False},
        "granian.access": {"handlers": [], "level": "CRITICAL"},
    },
}
