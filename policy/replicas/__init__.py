"""Questions on replicas: PostgreSQL's streaming standbys, which answer beside the primary and never in place of it.

    reading    asks a replica, and the primary where its answer does not count: what endpoints call
    known      what this process knows of the primary, and so which answers are too old
    replica    one replica: whether it may be asked, who asks it now, and the end of what hangs
    watch      a look at each server every second, by a thread each
    server     the connection by which they look
    standing   what is said of replicas
"""
