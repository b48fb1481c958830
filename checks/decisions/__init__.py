"""The decision log.

`log` writes a line for each answer, `lines` reads them, `replay` asks a line's questions again, and `policies` compares
how two policies answer them.
"""
