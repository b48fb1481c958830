"""The decision log: `log` writes a line for each answer, `lines` reads them, `replay` asks their questions again."""
