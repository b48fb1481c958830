"""Questions on replicas: PostgreSQL's streaming standbys, which answer beside the primary and never in place of it.

reading    asks a replica, and the primary where its answer does not count: what endpoints call
known      what this process knows of the primary, and so which answers are too old
attempt    one attempt to read from a replica
replica    one replica: whether it may be asked, which questions it is asked now, and ending those that hang
watch      a look at each server every second, by a thread each
server     the connection that such a look uses
standing   how replicas stand, for people and for metrics
"""
