"""The description of the HTTP interface, from which the OpenAPI document and the page at /api/docs are made.

Read it in this order:

* `schemas`     what is said about an endpoint, and the JSON schemas of what it takes and answers
* `operations`  every endpoint, with an example
* `document`    the OpenAPI document, and its page
"""
