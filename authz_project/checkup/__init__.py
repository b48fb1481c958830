"""What `check_service` looks at, and what it finds: one line for each thing.

`of_settings`, `of_database`, `of_keys` and `of_files` look, each at what it is called after; `check_finding` is what
they find, and `report` puts it into lines. Nothing here changes anything.
"""
