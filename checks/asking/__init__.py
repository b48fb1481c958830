"""Answer questions: each is one statement, which also confirms the caller's key and the policy's version.

Read it in this order:

* `ask`                         the use cases behind every endpoint and command that asks
* `question`                    what is asked, and its outline without values
* `session`, `askers`           the policy that answers, its prepared statements, and who asks
* `run`, `postgresql`, `sqlite` run statements, within `deadline` and in `turns`
* `confirmation`                what a statement confirms in the snapshot that it reads
* `by_rows`                     many questions in one statement
* `paging`, `answer_cache`      pages of one moment, and answers that are kept
* `snapshot`                    many small questions about one moment
"""
