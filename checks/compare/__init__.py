"""Compare answers: of two policies (`preview`), or of two moments (`review`).

Read it in this order:

* `kinds`        kinds of questions to compare by, and sets of answers
* `differences`  asks two policies the same questions about samples of values
* `preview`      what a policy that is not published yet would change
* `review`       who had access as of a moment, or gained and lost it between two
* `review_walk`  goes through a review from a cursor on: to its end for the command, a page at a time for `review_page`
"""
