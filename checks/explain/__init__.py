"""Explain decisions: `explain` is the use case, `search` finds proofs, `failures` finds what is missing.

`cases` are rules as they were written, and `tree` is an explanation, which `explain` writes as JSON and text.
"""
