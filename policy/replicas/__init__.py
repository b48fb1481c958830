"""Reads from replicas: PostgreSQL's streaming standbys, which answer besides the primary and never in place of it.

* `reading`   reads from a replica, or from the primary if the replica's answer is not valid: what endpoints call;
              and the status of replicas, for people and for metrics
* `replica`   one replica: its state, its running queries, the connection with which it is probed, and an attempt
* `watch`     what this process knows of the primary, and one thread per server, which probes it every second
"""
