"""What the service does, in numbers, for Prometheus: all workers together, on a listener of its own.

`table` says which metrics there are. In each worker, `tallies` counts in plain numbers what observers are told
(`authz_project/observing.py`), and twice a second `worker` adds that to metrics of the official client, which keeps
them in files that the processes of a server share. `together` puts the files together, those of workers that have
ended as well; the server's parent process, which outlives them all, does that for whoever asks (`serving`).

Where `serve` has no `--metrics-port`, nothing of this is imported but this file and `folder`, and nobody observes.
"""
