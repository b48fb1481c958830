"""The description of the HTTP API, from which the OpenAPI document and the page at /api/docs are generated.

Read it in this order:

* `schemas`     JSON schemas of requests and responses
* `operations`  every operation, as described by its endpoint (`docs`), with an example from `examples.json`
* `document`    the OpenAPI document, and its page
"""
