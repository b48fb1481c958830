"""Log output on standard error: one format for all of it, whole lines, and no secrets.

`formats` renders a record as plain text or JSON, with the id of the request that the thread is processing. `access`
logs every request and every slow query, and sets up logging: both are observers (`authz_project/observers.py`).
"""
