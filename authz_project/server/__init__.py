"""From a client's connection to the code that answers, and back.

`supervisor` is the parent of the worker processes: it starts and replaces them until it receives a signal to stop.
`listening` is the socket that they share. `process` is a worker, and passes each request to `intake`, which decides
whose body is read, up to a size and within a deadline. `workers` has the threads that answer: for questions, for small
changes, which wait for one another's commits, and for requests that wait for changes. `exchange` has the application
answer, and sends the response. `database_waits` ends waits for a PostgreSQL that hangs.

Beside them, `listening` ends connections that keep others out, `readiness_probe` looks whether the database is there,
and `upkeep` tidies up.
"""
