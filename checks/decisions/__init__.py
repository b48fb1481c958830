"""The log of decisions: they are written down as they are answered, read back, and asked again.

`answers` says what is kept of an answer, `log` makes lines, `writer` writes them, and `lines` reads them. `questions`
makes questions of a line, `replay` asks a line again, and `policies` compares how two policies answer it.
"""
