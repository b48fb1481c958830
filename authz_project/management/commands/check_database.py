"""Whether what is stored agrees with itself."""

import sys
from typing import Any

from django.core.management.base import CommandError
from django.db import Error

from authz_project.backups.verify import findings
from authz_project.database import missing_database
from policy.management.command import ServiceCommand


class Command(ServiceCommand):
    help = (
        "Say whether what is stored agrees with itself: form, facts beside the revisions that made them, policies. It "
        "changes nothing. verify_backup does this with a copy."
    )

    def handle(self, **options: Any) -> None:
        if missing := missing_database():
            raise CommandError(f"No database at {missing}. DATABASE_URL says where it is.")
        are_good = True
        try:
            for finding in findings():
                are_good &= finding.is_good
                self.stdout.write(str(finding))
        except Error as reason:
            raise CommandError(f"the database cannot be read: {' '.join(str(reason).split())}") from None
        if not are_good:
            sys.exit(1)
