"""Explain decisions: `explain` is the use case, and writes explanations as JSON and text.

`cases` are rules as they were written, `search` finds proofs, and `tree` finds what is missing; it makes a tree of
either.
"""
