"""The admin's views of policies.

`editing` is the policy editor. `highlight` does syntax highlighting, shows problems and failed tests next to the lines
that they are about, and compares two texts.
"""
