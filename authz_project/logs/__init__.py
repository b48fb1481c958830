"""What the service writes to standard error: one format for all of it, whole lines, and nothing that is secret.

`formats` makes a line of a record, plain or as JSON; `lines` writes it in one piece; `current` knows which request a
thread answers, so that every line says so. `access` writes a line for each request and `slow` one for each question
that took long: both are observers (`authz_project/observing.py`), which `begin` starts.
"""
