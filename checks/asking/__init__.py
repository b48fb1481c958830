"""Answer questions: each is one SQL statement, which also confirms the caller's key and the policy version.

Read it in this order:

* `question`           questions, their outlines without values, and the statements prepared for these
* `ask`                who asks, the policy that answers, and what endpoints and commands that check something call
* `by_rows`            many questions in one statement
* `run`, `postgresql`  run statements
* `limits`             deadlines, and turns of slow statements
* `paging`             pages of one moment
* `snapshot`           many small questions in one snapshot
"""
