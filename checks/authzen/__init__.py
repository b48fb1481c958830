"""The AuthZEN Authorization API 1.0 of the OpenID Foundation: other endpoints for the same questions.

`requests` decodes what they are sent, `asking` answers by the questions of /api, and `views` has the endpoints. `lines`
reads them from the decision log.
"""
