"""Analysis of policies over all facts that they accept, by the answer set solver clingo.

* `proofs`     the rules that a question reaches, specialised to its constants and types (a slice); what they prove
               without a search, and how many ids of each type a counterexample needs at most
* `solver`     the program that runs clingo, in a process of its own
* `search`     slices as an answer set program over a finite universe of values; the solver's process and its limits;
               claims, and searches against them with more and more ids until time is over; the engine confirms each
* `questions`  comparing policies, proving, ways to allow, what has no effect: each is asked as claims, and answered
               as text and policy tests
"""
