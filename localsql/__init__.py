"""Local SQL: statements that answer checks in the application's own database.

Read it in this order:

* `bindings`                which of the application's queries provide which facts
* `asking`                  the use cases, and the conditions and queries that they return
* `plan`                    the engine's plan over the application's tables, and its parts that stored facts decide
* `fold`, `render`          evaluates these parts, and renders the rest
* `dialects`                differences between databases
* `sync`                    keeps stored facts equal to rows of the application
"""
