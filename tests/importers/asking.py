"""Asks questions of a model that was carried over, on the engine, over its facts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from time import monotonic

from authz_project.importers.convert import Carried
from authz_project.importers.facts import ANYBODY, CarriedFacts
from authz_project.importers.ir import ContextValues, ImportReport, Thing, Tuple, Who
from checks.asking.question import Asked, question_about
from checks.asking.snapshot import FactsAlone
from checks.errors import CannotEnumerate
from facts.accept import check_facts
from facts.wire import Fact
from policy.rules import compile_text
from policy.rules.program import Signature
from policy.values import Value


class Carriage:
    """A policy with facts, that answers as the original was asked."""

    def __init__(self, carried: Carried):
        self.carried = carried
        self.program = compile_text(carried.policy)
        self.facts = CarriedFacts(carried.layout)
        check_facts(self.program, carried.facts, None)
        self.sessions: dict[frozenset[Signature], FactsAlone] = {}

    def check(
        self,
        who: Who,
        relation: str,
        thing: Thing,
        tuples: Iterable[Tuple] = (),
        context: ContextValues = (),
        facts: Iterable[Fact] = (),  # beside those that are made of the context
    ) -> bool:
        value, stand_in = self.facts.asked(who)
        predicate, args = self.facts.question(value, relation, thing)
        question = question_about(predicate, [Asked(arg.type, (arg.id,)) for arg in args], ())
        return self._over([*stand_in, *self._given(tuples, context), *facts]).holds(question)

    def objects(
        self, who: Who, relation: str, type_name: str, tuples: Iterable[Tuple] = (), context: ContextValues = ()
    ) -> set[str]:
        value, stand_in = self.facts.asked(who)
        predicate, args = self.facts.question(value, relation, Thing(type_name, "any"))
        place = 0 if predicate == "has_relation" else 2
        facts = [*stand_in, *self._given(tuples, context)]
        return {f"{type_name}:{text}" for text in self._listed(predicate, args, place, facts)}

    def subjects(
        self, kind: str, relation: str, thing: Thing, tuples: Iterable[Tuple] = (), context: ContextValues = ()
    ) -> set[str]:
        """Subjects of a kind, `user` or `group#member`; everybody is `user:*`."""
        type_name, _, of = kind.partition("#")
        tuples = list(tuples)
        given = self._given(tuples, context)
        if of:
            return self._usersets(type_name, of, relation, thing, given)
        any_one = Value(self.carried.layout.types[type_name], "any")
        predicate, args = self.facts.question(any_one, relation, thing)
        try:
            found = self._listed(predicate, args, args.index(any_one), given)
        except CannotEnumerate:
            found = self._among(type_name, relation, thing, given)
        return {f"{type_name}:{text}" for text in found}

    # ---- how ---------------------------------------------------------------------------------------------------------

    def _usersets(self, type_name: str, of: str, relation: str, thing: Thing, given: list[Fact]) -> set[str]:
        """Each userset of the kind that can be named is asked about."""
        here = self.carried.layout.types[type_name]
        ids = {arg.id for fact in (*self.carried.facts, *given) for arg in fact.args if arg.type == here} | (
            {thing.id} if thing.type == type_name else set()
        )
        found = set()
        for each in ids:
            who = Who(type_name, each, of)
            value, stand_in = self.facts.asked(who)
            predicate, args = self.facts.question(value, relation, thing)
            question = question_about(predicate, [Asked(arg.type, (arg.id,)) for arg in args], ())
            if self._over([*stand_in, *given]).holds(question):
                found.add(str(who))
        return found

    def _among(self, type_name: str, relation: str, thing: Thing, given: list[Fact]) -> set[str]:
        """Where there is no list, since everybody but some may: those who are known, and somebody who is not."""
        here = self.carried.layout.types[type_name]
        known = {arg.id for fact in (*self.carried.facts, *given) for arg in fact.args if arg.type == here}
        found = set()
        for each in [*known, ANYBODY]:
            value = Value(here, each)
            predicate, args = self.facts.question(value, relation, thing)
            question = question_about(predicate, [Asked(arg.type, (arg.id,)) for arg in args], ())
            if self._over(given).holds(question):
                found.add("*" if each == ANYBODY else each)
        return found

    def _listed(self, predicate: str, args: tuple[Value, ...], place: int, facts: list[Fact]) -> set[str]:
        asked = [Asked(arg.type) if at == place else Asked(arg.type, (arg.id,)) for at, arg in enumerate(args)]
        rows = self._over(facts).answers(question_about(predicate, asked, (place,)))
        return {"*" if row[0] is None else row[0] for row in rows}

    def _given(self, tuples: Iterable[Tuple], context: ContextValues) -> list[Fact]:
        report = ImportReport()
        facts = [*self.facts.of_all(tuples, report), *self.facts.context(context)]
        check_facts(self.program, [fact for fact in facts if fact.predicate != "context"], None)
        return facts

    def _over(self, facts: Iterable[Fact]) -> FactsAlone:
        """A session over these facts too; one for all questions whose facts have the same signatures."""
        every = tuple(dict.fromkeys((*self.carried.facts, *facts)))
        signatures = frozenset(fact.signature for fact in every)
        if signatures not in self.sessions:
            self.sessions[signatures] = FactsAlone.of_signatures(self.program, signatures)
        return replace(self.sessions[signatures], context=list(every), answered={}, started=monotonic())
