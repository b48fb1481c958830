"""Metrics for Prometheus: of all workers together, on a port of their own.

`table` says which metrics there are. In each worker, `tallies` counts what observers are told
(`authz_project/observing.py`), and twice a second `worker` adds the counts to metrics of the official client, which
keeps them in files that the processes of a server share. `serving` merges the files for each scrape, also those of
workers that have ended, in the server's parent process, which outlives all workers.

Where `serve` has no `--metrics-port`, nothing of this is imported but this file and `folder`, and nobody observes.
"""
