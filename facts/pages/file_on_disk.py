"""Answers that are files with a name: servers send them by themselves, and none of them is in memory."""

from typing import BinaryIO

from django.http import FileResponse


class FileOnDisk(FileResponse):
    """An answer that is a file with a name, which servers can send by themselves."""

    def __init__(self, file: BinaryIO, path: str, **options: object):
        super().__init__(file, **options)  # type: ignore[arg-type]  # what it takes, it says
        self.path = path
