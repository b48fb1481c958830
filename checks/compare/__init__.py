"""Compare answers: of two policies (`preview`), or of two moments (`review`).

Read it in this order:

* `kinds`        kinds of questions to compare by, and sets of answers
* `differences`  compares two policies' answers to the same questions about samples of values
* `preview`      the impact of an unpublished policy
* `review`       who had access as of a moment, or gained and lost it between two
* `review_walk`  walks through a review from a cursor: to its end for the command, in pages for `review_page`
"""
