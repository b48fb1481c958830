"""A server for editors that support the Language Server Protocol.

`document` is an open text and what is known about it, `answers` handles requests about it, and `server` receives them
and sends diagnostics. Needs pygls (`pip install "authz-project[editor]"`), which nothing else imports.
"""
