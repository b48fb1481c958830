"""Decisions that were made: written down as they are answered, read again, and asked again.

`answers` says what is kept of an answer, `log` writes lines, `lines` reads them, `again` asks one again, `questions`
has what it asked as questions, and `policies` how two policies answer that.
"""
