"""From a client's connection to the code that answers, and back.

`supervisor` is the parent of the worker processes: it starts and replaces them, until `signals` receives a signal to
stop. `process` is a worker, and passes each request to `intake`. `intake` decides whose body is read, and up to which
size; `reading` reads it within a deadline. `slots` has the threads that answer, and adds threads while some of them
take long. `changes` has threads for small changes, which wait for one another's commits, and `waiting` has threads for
requests that wait for changes. `exchange` has the application answer, and sends the response. `database_waits` ends
waits for a PostgreSQL that hangs.

Beside them, `connection_limits` ends connections that keep others out.
"""
