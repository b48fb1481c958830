"""The admin's pages of stored facts.

`listing` selects the facts of a page and formats them; `browse`, `change` and `files` (import and export) are the
pages; `addresses` builds their URLs.
"""
