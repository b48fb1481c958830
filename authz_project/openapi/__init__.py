"""The description of the HTTP interface, from which the OpenAPI document and the page at /api/docs are made.

Read it in this order:

* `schemas`     the JSON schemas of what endpoints take and answer
* `operations`  every operation, as its endpoint describes it (`docs`), with an example of `examples.json`
* `document`    the OpenAPI document, and its page
"""
