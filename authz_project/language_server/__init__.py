"""Policies in any editor that speaks the Language Server Protocol.

`positions` turns offsets into the protocol's positions and back; `document` is an open text with what is known of it;
`hover`, `renaming` and `answers` are what an editor asks about it; `server` takes the questions, and sends problems.
The package needs pygls (`pip install "authz-project[editor]"`), which nothing else here imports.
"""
