"""What the service writes to standard error: one format for all of it, whole lines, and nothing that is secret.

`formats` makes a line of a record, plain or as JSON, with the id of the request that the thread answers. `access` has
a line for each request, and one for each question that took long, and begins to write them: both are observers
(`authz_project/observing.py`).
"""
