"""Whether an environment's policy compiles and answers: what a list has, a question about each of it must allow."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from authz_project.backups.backup_finding import BackupFinding, wrong
from checks.asking import ask
from checks.asking.askers import Trusted
from checks.asking.query import allow
from checks.asking.question import Asked
from facts.mentioned_ids import known_ids
from policy.active import program_of_version
from policy.errors import AuthzError
from policy.models import Environment
from policy.rules.program import Program
from policy.values import STRING, Value

NOBODY = "somebody whom no fact mentions"
MOST_ACTORS, MOST_CHECKED = 20, 20


def finding_of_policy(environment: Environment) -> BackupFinding:
    """Compile the active policy, and ask by it."""
    what = f"policy of `{environment.slug}`"
    version = environment.policy_version
    if version is None:
        return BackupFinding(what, "none is active")
    if version.environment_id != environment.pk:
        return wrong(what, "the active version is another environment's")
    try:
        program = program_of_version(version.pk)
    except AuthzError as reason:
        return wrong(what, f"version {version.number} does not compile: {_line(reason)}")
    try:
        return BackupFinding(what, f"version {version.number} compiles; {_asked(environment.pk, program)}")
    except AuthzError as reason:  # which is no fault of what is stored
        return BackupFinding(what, f"version {version.number} compiles; a question was refused: {_line(reason)}")
    except _Contradiction as reason:
        return wrong(what, f"version {version.number}: {reason}")


def _line(reason: AuthzError) -> str:
    return " ".join(reason.message.split())[:300]


class _Contradiction(Exception):
    """Two answers that cannot both be right."""


def _asked(environment_id: int, program: Program) -> str:
    """Ask for lists until one is not empty, and say what was answered."""
    answered = "it names nothing to ask about"
    for actor, action, resource_type in islice(_questions(environment_id, program), MOST_ACTORS):
        listed = _list(environment_id, actor, action, resource_type)
        _confirm(environment_id, actor, action, resource_type, listed)
        answered = f'{actor.type}:{actor.id} may "{action}" {len(listed):,} {resource_type}'
        if listed:
            break
    return answered


def _questions(environment_id: int, program: Program) -> Iterator[tuple[Value, str, str]]:
    """Yield actors that facts mention, and what they may be allowed; in the order of names."""
    types = sorted(program.types.values(), key=lambda each: each.name)
    asked = [(each.permissions[0], each.name) for each in types if each.permissions]
    actors = [each.name for each in types if each.kind == "actor"]
    ids = known_ids(environment_id, actors, limit=MOST_ACTORS)
    for actor_type in actors:
        for text in ids.get(actor_type) or [NOBODY]:
            for action, resource_type in asked:
                yield Value(actor_type, text), action, resource_type


def _list(environment_id: int, actor: Value, action: str, resource_type: str) -> list[str | None]:
    question = allow(Asked(actor.type, (actor.id,)), Asked(STRING, (action,)), Asked(resource_type), ("resource",))
    return [row[0] for row in ask.answer(Trusted(environment_id), question).of_one]


def _confirm(environment_id: int, actor: Value, action: str, resource_type: str, listed: list[str | None]) -> None:
    """Check single decisions against a list, in which None stands for every resource; raise _Contradiction."""
    expected = {text: True for text in listed[:MOST_CHECKED] if text is not None}
    expected.setdefault(NOBODY, None in listed)
    for text, is_allowed in expected.items():
        resource = Asked(resource_type, (text,))
        found = ask.answer(
            Trusted(environment_id), allow(Asked(actor.type, (actor.id,)), Asked(STRING, (action,)), resource)
        )
        if found.holds != is_allowed:
            raise _Contradiction(f'a list and a decision differ: may {actor} "{action}" {resource_type}:{text}?')
