"""Starts what a server's process writes to its log, as the settings want it."""

from __future__ import annotations

import logging
import threading

from django.conf import settings

from authz_project import observing
from authz_project.logs.access import AccessLog, json, plain, tell_if_question

log = logging.getLogger("authz.server")


def begin() -> None:
    """Begin to log warnings, ended threads, requests and slow questions. Called once in each process that answers."""
    logging.captureWarnings(True)
    threading.excepthook = _ended
    if settings.ACCESS_LOG:
        observing.observe(AccessLog(json if settings.LOG_FORMAT == "json" else plain))
    if settings.SLOW_QUESTION_MS:
        observing.observe(tell_if_question, settings.SLOW_QUESTION_MS / 1000)


def _ended(thread: threading.ExceptHookArgs) -> None:
    """Log that a thread has ended by an exception that nothing caught."""
    if thread.exc_type is SystemExit or thread.exc_value is None:
        return
    name = thread.thread.name if thread.thread is not None else "?"
    log.critical("the thread `%s` has ended", name, exc_info=thread.exc_value)
