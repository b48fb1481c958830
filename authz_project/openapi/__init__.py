"""The interface, described: what every endpoint takes and answers, for programs and for people.

In order of control flow:

* `answers`     JSON schemas of what is answered, by name
* `shapes`      those, and the schemas of what is sent, which are made from what decodes it
* `operation`   what is said about one endpoint
* `operations`  all of them, in the order of a story, which is their examples
* `document`    operations -> OpenAPI document
* `shape_text`  schema -> text for people
* `views`       the document at /api/openapi.json, the page at /api/docs
"""
