"""The admin's pages of stored facts.

`browse` lists and searches facts, and shows a value; `change` adds, deletes, imports and exports facts; `admin` has
their URLs and checks permissions.
"""
