"""The project: settings, URLs, API keys, errors, the admin site, the command line. No other app imports it."""

__version__ = "0.1.0"
