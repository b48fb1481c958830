"""What the admin shows of policies, in HTML where it is more than text.

`highlight` gives words of a policy their classes; `excerpts` are problems and failed tests beside the lines that they
are about; `differing_lines` compares two texts; `editor` is the page where policies are written.
"""
