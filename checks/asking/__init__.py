"""Answer questions: each is one SQL statement, which also confirms the caller's key and the policy version.

Read it in this order:

* `ask`                         the use cases behind every endpoint and command that checks or lists something
* `question`                    questions, and their outlines without values
* `session`, `askers`           the policy that answers, prepared statements, what they confirm, and who asks
* `run`, `postgresql`, `sqlite` run statements, within `deadline` and in `turns`
* `by_rows`                     many questions in one statement
* `paging`, `answer_cache`      pages of one moment, and cached answers
* `snapshot`                    many small questions in one snapshot
"""
