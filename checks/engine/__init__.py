"""The decision engine: a program and a question's shape become one SQL statement. Free of Django.

In the order in which a question goes through it:

compile     shape -> plan -> finished statement: the way in
rules/      program -> the clauses of any call
plan/       clauses -> what is read, joined and tested
sql/        plan -> SQL
answers     rows -> answers
errors      what a question is refused for

Each room uses those before it only: `sql` uses `plan`, `plan` uses `rules`.
"""
