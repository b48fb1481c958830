"""The AuthZEN Authorization API 1.0 of the OpenID Foundation: other endpoints for the same questions.

`entities` reads what requests are made of, `evaluations` what they ask, `properties` makes context facts of properties,
`asking` asks, and `views` are the endpoints. `lines` reads what the decision log has of them. Nothing is decided here
that /api would decide otherwise.
"""
