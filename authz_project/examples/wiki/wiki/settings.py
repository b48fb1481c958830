"""The example of docs/django.md: a wiki of teams, with the engine inside.

python manage.py migrate
"""

from pathlib import Path

import environ

BASE_DIR = Path(__file__).parent.parent
SECRET_KEY = "for-an-example-only"  # noqa: S105
DEBUG = False
ALLOWED_HOSTS = ["*"]
ROOT_URLCONF = "wiki.urls"
DATABASES = {"default": environ.Env().db_url("WIKI_DATABASE_URL", default="sqlite:///wiki.sqlite3")}
INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "rest_framework",
    "documents",
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
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
LOGIN_URL = "/login/"
LOGIN_REDIRECT_URL = "/"
STATIC_URL = "static/"
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
REST_FRAMEWORK = {"DEFAULT_AUTHENTICATION_CLASSES": ["rest_framework.authentication.SessionAuthentication"]}

# ---- what protects it
INSTALLED_APPS += ["policy", "facts", "checks", "localsql"]
AUTHENTICATION_BACKENDS = ["django.contrib.auth.backends.ModelBackend", "localsql.django.PermissionBackend"]
AUTHZ = {"POLICY": BASE_DIR / "policy.polar"}
