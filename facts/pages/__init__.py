"""The pages of stored facts in the admin.

`listing` says which facts a page is about, and how they are shown; `browse`, `value`, `change` and `files` (import and
export) are the pages; `addresses` leads to them.
"""
