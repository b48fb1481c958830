"""How long the pages of questions take with many facts: each page whole, as a browser has it, and what the engine took.

    python -m tests.benchmarks.ask_pages --database sqlite [--facts 200000]

The company of `generate`, and an organisation with 60,000 repositories and 20,000 members: the longest lists. Wall
clock and processor time in milliseconds, of the first request and the quickest of five more.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Iterator

from tests import standalone
from tests.benchmarks.engine import database
from tests.benchmarks.generate import POLICY, Size, fact, facts_of

RUNS = 5
REPOS, MEMBERS = 60_000, 20_000
ASKED = {
    "nothing yet": "",
    "allowed": "kind=authorize&actor=User:member-1&action=read&resource=Repo:repo-big-1",
    "denied": "kind=authorize&actor=User:user-0&action=write&resource=Repo:repo-big-1",
    "wrong names": "kind=authorize&actor=User:usr-0&action=wriet&resource=Repo:repo-big-1",
    "actions": "kind=actions&actor=User:boss&resource=Doc:doc-100",
    "list": "kind=list&actor=User:member-1&action=read&resource=Repo",
    "its middle": "kind=list&actor=User:member-1&action=read&resource=Repo&of=Repo&after=repo-big-3",
    "backwards": "kind=list&actor=User:member-1&action=read&resource=Repo&of=Repo&before=repo-big-3",
    "filtered": "kind=list&actor=User:member-1&action=read&resource=Repo&filter=99",
    "through a tree": "kind=list&actor=User:boss&action=read&resource=Doc",
    "with denials": "kind=list&actor=User:boss&action=comment&resource=Doc",
    "list as of": "kind=list&actor=User:member-1&action=read&resource=Repo&revision={before}",
    "who": "kind=who&action=read&resource=Repo:repo-big-1",
    "who, filtered": "kind=who&action=read&resource=Repo:repo-big-1&filter=777",
    "changed: 2": "kind=changed&actor=User:user-1&from={before}",
    "changed: none": "kind=changed&actor=User:boss&from={before}",
    "changed: 60,000": "kind=changed&actor=User:user-0&from={before}",
}
REVIEWED = {
    "who had what": "at={now}",
    "who had what, filtered": "at={now}&filter=user-77",
    "who had what: nothing": "at={now}&filter=zzz",
    "gained": "start={before}",
    "gained: nothing": "start={before}&filter=zzz",
    "gained by one": "start={before}&actor_type=User:user-1",
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--facts", type=int, default=200_000)
    parser.add_argument("--database", choices=("sqlite", "postgres"), default="sqlite")
    asked = parser.parse_args()
    with database(asked.database) as url:
        standalone.set_up(url)
        now = filled(asked.facts)
        print(f"{'':24}{'first':>8}{'wall':>8}{'cpu':>8}{'engine':>8}")
        for page, queries in (("ask", ASKED), ("review", REVIEWED)):
            for name, query in queries.items():
                row(page, name, query.format(now=now, before=now - 1))
    return 0


def filled(count: int) -> int:
    """Store all of it, and return the latest revision, before which two users gained something."""
    from django.conf import settings
    from django.core.management import call_command

    from facts.loading import load
    from facts.wire import Fact
    from policy.models import Environment, default_environment
    from policy.publishing import publish

    settings.ALLOWED_HOSTS.append("testserver")
    call_command("migrate", verbosity=0)
    environment = default_environment()
    publish(environment.pk, POLICY, "")
    late = [
        fact("has_role", ("User", 0), "member", ("Org", "big")),
        fact("has_role", ("User", 1), "writer", ("Repo", "repo-big-1")),
    ]
    for facts in ((*facts_of(Size(count)), *the_big_one()), late):
        load(environment.pk, enumerate((Fact(*each) for each in facts), 1))
    return Environment.objects.get(pk=environment.pk).offset


def row(page: str, name: str, query: str) -> None:
    from django.contrib.auth.models import User
    from django.test import Client
    from django.urls import reverse

    from policy.models import PolicyVersion

    client = Client()
    client.force_login(User.objects.filter(username="ada").first() or User.objects.create_superuser("ada"))
    address = f"{reverse(f'admin:policy_policyversion_{page}', args=[PolicyVersion.objects.get().pk])}?{query}"
    walls, processor, engine = [], [], ""
    for _ in range(RUNS + 1):
        begun = time.perf_counter(), time.process_time()
        answer = client.get(address)
        walls.append((time.perf_counter() - begun[0]) * 1000)
        processor.append((time.process_time() - begun[1]) * 1000)
        assert answer.status_code == 200, (address, answer.status_code)
        found = re.search(r"Found in ([\d.,]+)", answer.content.decode())
        engine = found[1] if found else ""
    told = re.search(r'<h2 class="verdict[^"]*"><span>([^<]*)', answer.content.decode())
    shown = f"{walls[0]:>8.0f}{min(walls[1:]):>8.0f}{min(processor[1:]):>8.0f}{engine:>8}"
    print(f"{name:24}{shown}  {told[1] if told else ''}", flush=True)


def the_big_one() -> Iterator[tuple]:
    big = ("Org", "big")
    yield from (fact("has_relation", ("Repo", f"repo-big-{n}"), "organization", big) for n in range(REPOS))
    yield from (fact("has_role", ("User", f"member-{n}"), "member", big) for n in range(MEMBERS))


if __name__ == "__main__":
    sys.exit(main())
