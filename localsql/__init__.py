"""SQL for the application's own database that answers a question there.

Read it in this order:

* `bindings`                which queries of the application give which facts
* `asking`                  the use cases
* `plan`, `split`           the engine's plan over the application's tables, and which parts of it stored facts decide
* `fold`, `render`          evaluates these parts, and renders what is left
* `dialects`                what differs between databases
* `statements`              conditions and rows around it
* `sync`                    keeps stored facts equal to rows of the application
"""
