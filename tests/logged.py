"""What is logged meanwhile, as objects: each line as it is written where LOG_FORMAT is json."""

import json
import logging
from contextlib import contextmanager

from authz_project.log_formats import Json


class Collected(logging.Handler):
    def __init__(self):
        super().__init__()
        self.setFormatter(Json())
        self.lines: list[dict] = []

    def emit(self, each: logging.LogRecord) -> None:
        self.lines.append(json.loads(self.format(each)))


@contextmanager
def logged(name: str):
    """What a logger says inside, as objects."""
    handler, logger = Collected(), logging.getLogger(name)
    logger.addHandler(handler)
    try:
        yield handler.lines
    finally:
        logger.removeHandler(handler)
