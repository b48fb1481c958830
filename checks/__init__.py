"""Questions: may this actor do this, which actions, which resources, why, and what would change.

* `engine`                    rules and the shape of a question -> one SQL statement
* `asking`                    asks questions by such statements; the endpoints are in `views`
* `explain`                   why an answer is what it is
* `compare`                   answers of two policies, or of two moments
* `testing`                   the tests of policies
* `decisions`                 the decision log
* `authzen`                   the same questions by another interface
* `ask_pages`, `picture`      pages of the admin
"""
