"""Explain an answer: `explain` is the use case, `search` finds proofs, `failures` what is missing.

`cases` are rules as they were written, `tree` is an explanation, and `output` writes it as JSON and text.
"""
