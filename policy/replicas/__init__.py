"""Reads from replicas: PostgreSQL's streaming standbys, which answer besides the primary and never in place of it.

* `reading`   reads from a replica, or from the primary if the replica's answer is not valid: what endpoints call
* `attempt`   one attempt to read from a replica
* `replica`   one replica: its state, its running queries, and the connection with which it is probed
* `watch`     what this process knows of the primary, and one thread per server, which probes it every second
* `status`    the status of replicas, for people and for metrics
"""
