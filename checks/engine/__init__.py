"""The decision engine: a program and a question's shape become one SQL statement. Free of Django.

In the order in which a question goes through it:

clauses     terms, literals and clauses: rules with concrete types
applying, transitive    clauses and calls put together; rules that say that a relation is transitive
concrete    rule + argument types -> clauses
merging     clauses that differ in one constant as one
factoring   recursion that moves one argument at a time -> reachability of each argument on its own
calls       what a call leads to, through its clauses
rulebook    program -> the clauses of any call, remembered
plan, others    what is read, joined and tested: branches, nets, states; and for other databases
partial     a way that is being built
ordering    which literal to meet next
ways, states, variants, candidates, prefixes    what resolution asks along the way
resolve     literals -> ways: resolution at compile time
holding     literals that only have to hold -> conditions
relating    joins with what is worked out apart, once for all that need it
explored, answers, nets    ways -> a net with its goals and answers
question    shape -> plan -> finished statement
scope, steps, text, dialects, render    net -> SQL
rounds      recursion that no single statement says, worked out in rounds
answering   rows -> answers
effort      how long planning may take
errors      what a question is refused for

`question.compiled` is the way in; `answering.answers_of` and `rounds.worked_out` read what it returns.
"""
