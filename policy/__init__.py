"""The Polar language, its compiler, and the policies of each environment.

In the order in which a policy passes through them: `views`, `admin` and the commands receive a text; all of them call
`publishing`; `language` parses the text into a syntax tree, and `rules` compiles the tree into a `Program` (neither
imports Django); `models` stores versions, and `active` returns the compiled policy that is active now. `pages` has the
admin's pages about policies.

Shared by all apps: `values` (typed ids, facts in text form), `yaml_text` (YAML with positions), `errors` (errors
reported to callers), `endpoint` (requests, how their bodies are decoded and described, responses, and the base class),
`files`, `replicas`, and `core`, which doesn't depend on policies.
"""
