"""SQL for the application's own database that answers a question there.

Read it in this order:

* `bindings`                which queries of the application give which facts
* `asking`                  the use cases
* `plan`, `fold`, `render`  the engine's plan over the application's tables; what stored facts decide is evaluated; SQL
* `dialects`                what differs between databases
* `statements`              conditions and rows around it
* `sync`                    keeps stored facts equal to rows of the application
"""
