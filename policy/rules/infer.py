"""Flat rules -> the types of their variables, and of every call.

    hello(x) if greets(x, f) and f < 3;        x is anything, f is an Integer
    declare greets(User, Integer);             x is a User

A variable is *declared* if the rule itself gives its type: by a parameter, `matches`, `in` or an order comparison, or
if a helper rule gets the variable from a rule that does. Declared variables keep exactly those types: a call with them
is a signature of its own (polymorphic facts exist because rules ask for them).

An *open* variable starts as anything and is narrowed by the calls that bind it. In argument i of a call of p it can
only be what some *pattern* of p, among those that fit the call's other arguments, has at i. The patterns of p are

  - what blocks, `declare` and defaults state, and the heads of p's rules; where there are none, nothing is narrowed;
  - the calls of p whose arguments are all declared; and
  - the calls that fit no pattern. They ask for facts of a shape of their own, and in place of their open variables
    they take anything. (Which calls these are is known only at the end; then the narrowing starts over with them.)

Facts that are accepted whatever the rules say (`standing`) do not make a call fit. But a call that fits may meet these
facts too, so its open variables keep the types that these facts have there.

Open calls that fit are not patterns, since they would only confirm themselves, and not signatures. So narrowing loses
no answer: the types that it removes are in no fact that the policy accepts for p, and in no row that p's rules could
derive. A `not` narrows only variables that occur nowhere else. For any other variable, a value outside of p's patterns
makes the `not` true, and must stay.

The narrowing computes a greatest fixpoint in rounds, so the order of the rules does not matter. It may stop after any
round, since every round is sound.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from policy.language.notes import shown
from policy.rules.declarations import Vocabulary
from policy.rules.flat import FlatRule, Key
from policy.rules.narrowing import Narrowing, Pattern, Patterns, Typing
from policy.rules.problems import Problems
from policy.rules.program import Literal, Member, Rule, Types, Var

MAX_STARTS = 4  # runs of the narrowing at most


@dataclass(frozen=True, slots=True)
class Inferred:
    typings: list[Typing]  # one for each rule
    calls: Patterns  # what the calls ask for, apart from heads and what is stated


def infer(
    rules: list[FlatRule], stated: Patterns, standing: Patterns, vocabulary: Vocabulary, problems: Problems
) -> Inferred:
    own: dict[Key, set[Pattern]] = defaultdict(set)
    for _ in range(MAX_STARTS):
        narrowing = Narrowing(rules, stated, standing, own, vocabulary)
        narrowing.run()
        unfit = [(key, pattern) for key, pattern in narrowing.unfit_calls() if pattern not in own[key]]
        if not unfit:
            break
        for key, pattern in unfit:
            own[key].add(pattern)
    _warn_of_nothing(rules, narrowing.typings, vocabulary, problems)
    return Inferred(narrowing.typings, narrowing.signatures())


def typed_rules(rules: list[FlatRule], typings: list[Typing], vocabulary: Vocabulary) -> tuple[Rule, ...]:
    found = []
    for rule, typing in zip(rules, typings, strict=True):
        types = {variable: vocabulary.types_of(mask) for variable, mask in typing.items()}
        body = tuple([_fitting(literal, types) for literal in rule.body])
        found.append(Rule(rule.head, body, types, rule.origin))
    return tuple(found)


def _fitting(literal: Literal, types: Mapping[Var, Types]) -> Literal:
    """Return the literal; from a `Member`, drop the values whose types its variable cannot have."""
    if not isinstance(literal, Member):
        return literal
    return Member(literal.variable, tuple(v for v in literal.values if v.type in types[literal.variable]))


def _warn_of_nothing(rules: list[FlatRule], typings: list[Typing], vocabulary: Vocabulary, problems: Problems) -> None:
    for rule, typing in zip(rules, typings, strict=True):
        for variable in (variable for variable, mask in typing.items() if not mask):
            bound = rule.bounds.get(variable)
            if variable in rule.limits and bound and not bound & rule.limits[variable][0]:
                message = f"{shown(variable.name)} is always {vocabulary.describe(bound)}, which a `not` here excludes"
            else:
                message = f"no value of any type fits all uses of {shown(variable.name)}"
            problems.warn(rule.origin, message, "the rule, or this part of it, has no effect")
            break
