"""Fuzzing guided by coverage: bytes in, and nothing but documented refusals out.

`targets.py` says what is fed and what may come out, `run_long.py` runs Atheris on one target, and `corpus` keeps the
inputs that reach the most code. `test_fuzzing.py` replays them each day.
"""
