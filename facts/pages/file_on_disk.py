"""Responses with a file on disk: a server can send it by its path, without loading it into memory."""

from typing import BinaryIO

from django.http import FileResponse


class FileOnDisk(FileResponse):
    """A response with a file on disk, which a server can send by its `path`."""

    def __init__(self, file: BinaryIO, path: str, **options: object):
        super().__init__(file, **options)  # type: ignore[arg-type]  # what it takes, it says
        self.path = path
