"""Analysis of policies over all facts that they accept, by the answer set solver clingo.

* `slices`     the rules that a question reaches, specialised to its constants and types
* `bounds`     how many ids of each type a counterexample needs at most, where that can be proved
* `translate`  slices as an answer set program over a finite universe of values
* `solver`     the program that runs clingo, in a process of its own
* `search`     that process and its limits; searches with more and more ids until time is over
* `questions`  comparing policies, proving, ways to allow, unused rules
* `report`     results as text and as policy tests
"""
