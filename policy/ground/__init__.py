"""What all apps stand on. Nothing here knows what a policy, a fact or a question is.

* `journal`, `clock`    revisions, the transactions that add them, and the database's clock
* `waking`              waits for the next change of an environment
* `cache`, `memory`     a cache whose hits take no lock, and the memory budget of a process
* `spans`               timed parts of a request
"""
