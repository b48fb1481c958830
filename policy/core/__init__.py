"""The foundation of all apps. Nothing here depends on policies, facts or queries.

* `journal`, `clock`            revisions, the transactions that add them, and the database's clock
* `notifications`, `threads`    wait for the next change of an environment, and start threads
* `config`                      settings, of the service or of a Django project that has its apps
* `pagination`                  cursors, and lists that are read in pages
* `memory`                      a cache whose hits take no lock, and the memory budget of a process
* `spans`                       timed spans of a request
"""
