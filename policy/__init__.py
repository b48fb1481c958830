"""Polar text, what it means, and which of it is in force.

In the order in which a policy passes through them: `views`, `admin` and the commands receive a text; all of them call
`publishing`; `language` parses the text into a syntax tree, and `rules` compiles the tree into a `Program` (neither
imports Django); `testing` has the classes that report the policy's test results (the app above runs the tests);
`models` stores versions, and `active` gives every part of the service the program that is in force now. `pages` has
the admin's pages about policies.

For everyone: `values` (typed ids), `fact_text` (facts as people write them), `yaml_text` (YAML as people write it),
`errors` (what callers did wrong), `endpoint` (what all paths share), `serializers` (how bodies are decoded and
described), `files`, `replicas`, and `ground`, which knows nothing of policies.
"""
