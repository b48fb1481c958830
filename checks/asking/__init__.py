"""Answer questions: each is one SQL statement, which also confirms the caller's key and the policy version.

Read it in this order:

* `ask`                what endpoints and commands that check or list something call
* `question`           questions, and their outlines without values
* `session`            who asks, the policy that answers, prepared statements, and what they confirm
* `run`, `postgresql`  run statements
* `limits`             deadlines, and turns of slow statements
* `by_rows`            many questions in one statement
* `paging`             pages of one moment
* `snapshot`           many small questions in one snapshot
"""
