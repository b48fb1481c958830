"""The questions on the page of a value: what it may do, and who may do what to it. Only the chosen one is asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from checks.asking.query import allow
from checks.asking.question import Asked, Question
from checks.asking.snapshot import snapshot
from facts.formats import noted_value
from facts.pages.abilities import Ability, Answer, Choice, Section
from facts.pages.addresses import ask_url, value_url
from policy.active import program_of_version
from policy.errors import AuthzError, Unavailable
from policy.models import Environment
from policy.rules.program import Program
from policy.values import STRING, Value

COUNTED = 1_000  # answers; if there are more, the page only says so
SHOWN = 12  # answers that the page lists
MAY, WHO = "may", "who"


def sections(environment: Environment, value: Value, chosen: Mapping[str, str]) -> list[Section]:
    """Return the questions that the active policy can answer about the value, with the answer to the chosen one."""
    version = environment.policy_version_id
    try:
        program = program_of_version(version)
    except AuthzError:
        return []
    if version is None or program is None or value.type not in program.types:
        return []
    page = _Page(environment, version, program, value, chosen)
    found = (
        Section("What may it do?", MAY, tuple(page.may())),
        Section("Who may do what to it?", WHO, tuple(page.who())),
    )
    return [section for section in found if section.abilities]


class _Page:
    def __init__(
        self, environment: Environment, version: int, program: Program, value: Value, chosen: Mapping[str, str]
    ):
        self.environment = environment
        self.version = version
        self.program = program
        self.value = value
        self.chosen = chosen
        self.text = noted_value(value)

    def may(self) -> Iterator[Ability]:
        """Yield the questions about what the value may do, by the type of resource; none if it is no actor."""
        if self.program.types[self.value.type].kind != "actor":
            return
        for name, known in sorted(self.program.types.items()):
            if known.permissions:
                is_chosen = self.chosen.get(MAY) == name
                choices = tuple(self._choice(action, is_chosen, may=name) for action in known.permissions)
                action = next((each.name for each in choices if each.is_chosen), None)
                yield Ability(name, choices, None if action is None else self._resources(name, action))

    def who(self) -> Iterator[Ability]:
        """Yield the questions about who may do what to the value; none if its type has no permissions."""
        actions = self.program.types[self.value.type].permissions
        if actions:
            choices = tuple(self._choice(action, WHO in self.chosen, who="") for action in actions)
            action = next((each.name for each in choices if each.is_chosen), None)
            yield Ability("", choices, None if action is None else self._actors(action))

    def _choice(self, action: str, is_open: bool, **section: str) -> Choice:
        url = value_url(self.environment.slug, self.value, **section, action=action)
        return Choice(action, url, is_open and self.chosen.get("action") == action)

    def _resources(self, type_name: str, action: str) -> Answer:
        asked = {"actor": self.text, "action": action, "resource": type_name}
        actor = Asked(self.value.type, (self.value.id,))
        question = allow(actor, Asked(STRING, (action,)), Asked(type_name), ("resource",))
        url = ask_url(self.environment.slug, "list", **asked)
        return self._answer(lambda counted: f"May {action} {counted or 'none'}.", url, {type_name: question})

    def _actors(self, action: str) -> Answer:
        resource, name = Asked(self.value.type, (self.value.id,)), Asked(STRING, (action,))
        types = [each for each, known in sorted(self.program.types.items()) if known.kind == "actor"]
        questions = {each: allow(Asked(each), name, resource, ("actor",)) for each in types}
        url = ask_url(self.environment.slug, "who", action=action, resource=self.text)
        return self._answer(lambda counted: f"{counted or 'Nobody'} may {action} it.", url, questions)

    def _answer(self, sentence: Callable[[str], str], url: str, questions: Mapping[str, Question]) -> Answer:
        """Return how many answers there are, and the first ones."""
        found: dict[str, list[str | None]] = {}
        try:
            with snapshot(self.environment.pk, self.version, (), frozenset()) as session:
                for name, question in questions.items():
                    rows = session.first_answers(question, COUNTED + 1)
                    found[name] = sorted({row[0] for row in rows}, key=lambda text: (text is not None, text or ""))
        except (AuthzError, Unavailable) as reason:
            return Answer(url, trouble=reason.message)
        counts = ", ".join(_counted(name, ids) for name, ids in found.items() if ids)
        first = [
            (name, text, value_url(self.environment.slug, Value(name, text)))
            for name, ids in found.items()
            for text in ids[:SHOWN]
            if text is not None
        ]
        every = sum(len(ids) - (None in ids) for ids in found.values())
        return Answer(url, sentence(counts), tuple(first[:SHOWN]), every > len(first[:SHOWN]))


def _counted(name: str, ids: list[str | None]) -> str:
    if None in ids:
        return f"every {name}"
    number = f"more than {COUNTED:,}" if len(ids) > COUNTED else f"{len(ids):,}"
    return f"{number} of type {name}"
