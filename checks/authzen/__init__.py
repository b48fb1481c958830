"""The AuthZEN Authorization API 1.0 of the OpenID Foundation: other endpoints for the same questions.

`requests` decodes request bodies. `views` has the endpoints, which use the questions of /api, and reads their lines in
the decision log.
"""
