"""The decision engine: turns a program and a question's shape into one SQL statement. Independent of Django.

In the order in which a question passes through:

compile     shape -> plan -> finished statement, and its rows -> answers: the entry point
rules/      program -> the clauses of any call
plan/       clauses -> what is read, joined and tested
sql/        plan -> SQL

Each package only uses those before it: `sql` uses `plan`, `plan` uses `rules`.
"""
