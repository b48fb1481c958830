"""What the admin shows of policies, in HTML where it is more than text.

`editing` is the page where policies are written. `highlight` gives words of a policy their classes, shows problems and
failed tests beside the lines that they are about, and compares two texts.
"""
