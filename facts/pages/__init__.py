"""The pages of stored facts in the admin.

`narrowing` says which facts a page is about, `listing` how they are shown, `browse`, `value`, `deleting`, `adding`,
`importing` and `exporting` are the pages; `addresses` leads to them.
"""
