"""Polar text, what it means, and which of it is in force.

In the order in which a policy goes through them: `views`, `admin` and the commands receive a text; `publishing` is
what all of them call; `language` makes a syntax tree of the text and `rules` a `Program`, free of Django both;
`testing` is what running its tests reports (the app above runs them); `models` keeps versions, `offsets` puts writers
of an environment in a row, and `active` gives every part of the service the program that holds now.

For people: `files` makes one policy of several files, and `pages` is what the admin shows of policies.

For everyone: `values` (typed ids), `fact_text` (facts as people write them), `errors` (what callers did wrong),
`endpoint` (what all paths share), `serializers` (how bodies are decoded and described).
"""
