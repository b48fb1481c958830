"""Access checks: may this actor do this, which actions, which resources, why, and what would change.

* `engine`                    compiles rules and the shape of a question to one SQL statement
* `asking`                    answers questions by such statements; the endpoints are in `views`
* `explain`                   explains answers
* `compare`                   compares answers of two policies, or of two moments
* `testing`                   runs the tests of policies
* `decisions`                 the decision log
* `authzen`                   the same questions by the AuthZEN API
* `ask_pages`, `picture`      pages of the admin
"""
