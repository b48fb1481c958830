"""The foundation of all apps. Nothing here depends on policies, facts or queries.

* `journal`, `clock`    revisions, the transactions that add them, waiting for the next one, and the database's clock
* `config`              settings, of the service or of a Django project that has its apps
* `pagination`          cursors, and lists that are read in pages
* `memory`              a cache whose hits take no lock, and the memory budget of a process
* `spans`, `threads`    the request that a thread answers, with its timed spans, and starting threads
"""
