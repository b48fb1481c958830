"""The decision log: `log` writes and reads its lines, `replay` asks their questions again."""
