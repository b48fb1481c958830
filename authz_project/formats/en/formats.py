"""How pages of the admin write dates and times, in place of Django's formats of this language."""

DATE_FORMAT = "Y-m-d"
DATETIME_FORMAT = r"Y-m-d\TH:i\Z"  # ISO 8601 in UTC, as everywhere else
