"""The HTTP server: worker processes, their sockets, request intake, and thread pools.

- `supervisor` runs in the parent: it starts worker processes and replaces them until it receives a signal to stop.
- `listening` has the socket that the workers share, and closes connections that keep others out.
- `process` is a worker. It passes each request from granian (by `granian_internals`, or by the public interface) to
  `intake`, which decides whose body is read, and enforces size limits and deadlines.
- `workers` has the thread pools, for checks and for small changes (group commit), and requests that wait for changes
  without a thread (long polling).
- `exchange` calls the application and sends the response.
- `database_waits` ends waits for a PostgreSQL server that hangs; `readiness_probe` checks whether the database is up;
  and `upkeep` runs periodic tasks.
"""
