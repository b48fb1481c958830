"""How often a key may ask: a bucket of tokens for each, in each process, that fills again by the clock.

A bucket holds as many tokens as `RATE_LIMIT` allows in its period, and each request with the key takes one: so a key
may send all of them at once, and then as many as come back. A request that finds the bucket empty is refused with
the time to wait for the next token.
"""

from __future__ import annotations

import math
import threading
import time
from typing import NamedTuple, Protocol

from cachetools import LRUCache

from policy.errors import AuthzError

_MOST = 10_000  # keys; the least recently seen one is evicted, and begins anew with a full bucket


class Rate(Protocol):
    @property
    def requests(self) -> int: ...
    @property
    def seconds(self) -> int: ...


class TooManyRequests(AuthzError):
    """The key has asked too often; `seconds` says when to try again."""

    def __init__(self, rate: Rate, seconds: int):
        self.seconds = seconds
        super().__init__(
            f"this key has sent more than {rate}, the limit of RATE_LIMIT for a key and process;"
            f" try again in {seconds:,} second{'' if seconds == 1 else 's'}"
        )


class _Bucket(NamedTuple):
    tokens: float
    at: float  # when there were so many


_buckets: LRUCache[str, _Bucket] = LRUCache(_MOST)  # by the hash of a key that has been good
_lock = threading.Lock()


def take_token(key_hash: str, rate: Rate) -> None:
    """Take a token for a request; `TooManyRequests` where there is none."""
    with _lock:
        now = time.monotonic()
        tokens = _tokens(_buckets.get(key_hash), rate, now)
        if tokens >= 1:
            _buckets[key_hash] = _Bucket(tokens - 1, now)
            return
    wait = math.ceil((1 - tokens) * rate.seconds / rate.requests)
    raise TooManyRequests(rate, max(1, wait))


def _tokens(bucket: _Bucket | None, rate: Rate, now: float) -> float:
    if bucket is None:
        return rate.requests
    return min(rate.requests, bucket.tokens + (now - bucket.at) * rate.requests / rate.seconds)


def forget_all() -> None:
    """Fill every bucket."""
    with _lock:
        _buckets.clear()
