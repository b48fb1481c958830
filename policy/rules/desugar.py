"""Rewrite declarations and assertions as rules."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from policy.language import ast
from policy.language.ast import print_formula
from policy.language.source import Source, Span, clipped, shown
from policy.rules.components import Components, reachable
from policy.rules.declarations import PERMISSION, PREDICATES, RELATION, ROLE, Problems, Vocabulary, did_you_mean
from policy.rules.flatten import PredicateKey
from policy.rules.program import Assertion, Atom, Invariant, Test, Types, Var
from policy.values import ACTOR, RESOURCE, STRING, Value

# ---- The tests of a policy: expand their fixtures, check their facts and read their assertions --------------------
#     test fixture team { has_role(User{"ann"}, "owner", Doc{"d"}); }         a test with one fact
#     test "owners read" { setup { fixture team; } assert ...; }        ->    and one assertion
#
# The parser guarantees that facts are ground, and that an assertion has at most one variable.

Accepted = Mapping[PredicateKey, tuple[tuple[Types, ...], ...]]
MAX_FACTS = 100_000  # in all tests together: nested fixtures multiply


def tests_of(
    policy: ast.Policy, source: Source, accepted: Accepted, known: Vocabulary, problems: Problems
) -> tuple[Test, ...]:
    tests = [item for item in policy.items if isinstance(item, ast.Test)]
    _check_unique_names(tests, problems)
    fixtures = _fixtures(policy, problems)
    facts = {name: _own_facts(fixture.facts, accepted, known, problems) for name, fixture in fixtures.items()}
    room = MAX_FACTS
    found = []
    for test in tests:
        own = _own_facts(test.setup, accepted, known, problems)
        used = reachable(_used_by(test, fixtures), lambda name: _used_by(fixtures[name], fixtures))
        room -= len(own) + sum(len(facts[name]) for name in used)
        if room < 0:
            hint = "use smaller fixtures, or fewer of them"
            problems.error(test.span, f"the tests have more than {MAX_FACTS:,} facts in total", hint)
            break
        own |= {fact: None for name in used for fact in facts[name]}
        found.append(_test(test, tuple(own), source, known, problems))
    return tuple(found)


def _test(test: ast.Test, facts: tuple[Atom, ...], source: Source, known: Vocabulary, problems: Problems) -> Test:
    assertions, never = [], []
    for written in test.assertions:
        if isinstance(written, ast.NeverAssertion):
            never.append(_never(written, source, known, problems))
        else:
            assertions.append(_assertion(written, source, known, problems))
    return Test(test.name.text, facts, tuple(assertions), tuple(never), test.span)


def _never(written: ast.NeverAssertion, source: Source, known: Vocabulary, problems: Problems) -> Invariant:
    """Return the assertion's parts as texts, which are compiled when it is checked."""
    for arg in written.goal.params:
        if isinstance(arg, ast.Literal | ast.Parameter):
            _argument(arg, known, problems)
    goal, text = (source.text[span.start : span.end] for span in (written.goal.span, written.span))
    condition = print_formula(written.condition) if written.condition else ""
    return Invariant(goal, condition, text, written.span)


def _check_unique_names(tests: list[ast.Test], problems: Problems) -> None:
    seen: set[str] = set()
    for test in tests:
        if test.name.text in seen:
            problems.error(test.name.span, f"test {shown(test.name.text)} already exists", "rename one of them")
        seen.add(test.name.text)


# ---- fixtures and facts -------------------------------------------------------------------------------


def _fixtures(policy: ast.Policy, problems: Problems) -> dict[str, ast.Fixture]:
    found: dict[str, ast.Fixture] = {}
    for item in policy.items:
        if isinstance(item, ast.Fixture):
            if item.name.text in found:
                problems.error(item.name.span, f"fixture {shown(item.name.text)} already exists", "rename one of them")
            found.setdefault(item.name.text, item)
    for item in policy.items:
        if isinstance(item, ast.Fixture | ast.Test):
            _check_uses(item, found, problems)
    _check_cycles(found, problems)
    return found


def _uses(item: ast.Fixture | ast.Test) -> list[ast.FixtureUse]:
    facts = item.facts if isinstance(item, ast.Fixture) else item.setup
    return [fact for fact in facts if isinstance(fact, ast.FixtureUse)]


def _check_uses(item: ast.Fixture | ast.Test, fixtures: Mapping[str, ast.Fixture], problems: Problems) -> None:
    for use in _uses(item):
        name = use.name.text
        if name not in fixtures:
            hint = did_you_mean(name, fixtures) or f"define it: `test fixture {name} {{ ... }}`"
            problems.error(use.name.span, f"fixture {shown(name)} does not exist", hint)


def _check_cycles(fixtures: Mapping[str, ast.Fixture], problems: Problems) -> None:
    components = Components[str](lambda name: _used_by(fixtures[name], fixtures))
    reported: set[int] = set()
    for name in fixtures:
        number = components.number(name)
        if number is not None and number not in reported:
            reported.add(number)
            users = [fixtures[each] for each in fixtures if each in components.members(number)]
            use = next(use for each in users for use in _uses(each) if use.name.text == name)
            problems.error(use.span, f"fixture {shown(name)} includes itself", "remove one of the uses")


def _used_by(item: ast.Fixture | ast.Test, fixtures: Mapping[str, ast.Fixture]) -> list[str]:
    return [use.name.text for use in _uses(item) if use.name.text in fixtures]


def _own_facts(
    items: Iterable[ast.Call | ast.FixtureUse], accepted: Accepted, known: Vocabulary, problems: Problems
) -> dict[Atom, None]:
    calls = (item for item in items if isinstance(item, ast.Call))
    return dict.fromkeys(_fact(call, accepted, known, problems) for call in calls)


def _fact(call: ast.Call, accepted: Accepted, known: Vocabulary, problems: Problems) -> Atom:
    literals = [arg for arg in call.args if isinstance(arg, ast.Literal)]
    assert len(literals) == len(call.args)
    for literal in literals:
        known.check_literal(literal, problems)
    args = tuple([literal.value for literal in literals])
    if all(value.type in known.bits for value in args):
        _check_accepted(call, args, accepted, known, problems)
    return Atom(call.predicate.text, args)


def _check_accepted(
    call: ast.Call, args: tuple[Value, ...], accepted: Accepted, known: Vocabulary, problems: Problems
) -> None:
    name, span = call.predicate.text, call.predicate.span
    patterns = accepted.get((name, len(args)))
    if patterns is None:
        arities = sorted(arity for other, arity in accepted if other == name)
        if arities:
            message = f"{shown(name)} does not take {len(args)} argument{'s' * (len(args) != 1)}"
            problems.error(span, message, f"the policy uses it with {' or '.join(map(str, arities))}")
        else:
            hint = did_you_mean(name, {other for other, _ in accepted}) or f"add `declare {name}(...);`"
            problems.error(span, f"{shown(name)} is not used in policy", hint)
    elif not any(all(value.type in types for value, types in zip(args, p, strict=True)) for p in patterns):
        names = {known.types_of(mask): clipped(each) for each, mask in reversed([*known.masks.items()])}
        used = (_shown_fact(name, (names.get(types) or _either(types, known) for types in p)) for p in patterns[:3])
        message = f"{_shown_fact(name, (clipped(value.type) for value in args))} is not used in policy"
        problems.error(call.span, message, f"the policy uses {' and '.join(used)}")


def _shown_fact(predicate: str, types: Iterable[str]) -> str:
    """Format a fact for messages, with each name clipped by itself: `has_role(Actor, String, Repo or Org)`."""
    return f"`{clipped(predicate)}({', '.join(types)})`"


def _either(types: Types, known: Vocabulary) -> str:
    if len(types) == len(known.names):
        return "_"
    first = [clipped(name) for name in sorted(types)[:3]]
    return " or ".join([*first, "others"] if len(types) > 3 else first)


# ---- assertions ------------------------------------------------------------------------------------------


def _assertion(written: ast.Assertion, source: Source, known: Vocabulary, problems: Problems) -> Assertion:
    variable_type = next((arg.type.text for arg in written.args if isinstance(arg, ast.Parameter)), None)
    atom = Atom(written.predicate.text, tuple([_argument(arg, known, problems) for arg in written.args]))
    text = source.text[written.span.start : written.span.end]
    is_negated = bool(written.iff and written.iff.negated)
    values = None
    if written.iff:
        for literal in written.iff.values:
            known.check_literal(literal, problems)
        values = tuple(dict.fromkeys(literal.value for literal in written.iff.values))
    return Assertion(written.expected, atom, variable_type, is_negated, values, text, written.span)


def _argument(arg: ast.Literal | ast.Parameter, known: Vocabulary, problems: Problems) -> Value | Var:
    if isinstance(arg, ast.Parameter):
        known.mask_of(arg.type, problems)
        return Var(arg.variable.name)
    known.check_literal(arg, problems)
    return arg.value


# ---- desugar ------------------------------------------------------------------------------------------------------
# Shorthand -> longhand: each shorthand rule of a block becomes one equivalent rule.
#
#     resource Repo { ...                    has_permission(actor: Actor, "read", resource: Repo)
#       "read" if "member" on "org";    ->     if org matches Org and has_relation(resource, "org", org)
#     }                                        and has_role(actor, "member", org);
#
# `actor` and `resource` are the same variables throughout a rule, and so is a bare `role` or `permission`. Each `on`
# introduces a new variable for the related resource: `org` above is really `org#1`, a name that cannot occur in a text.

_LISTS = {ROLE: "roles", PERMISSION: "permissions", RELATION: "relations"}


@dataclass(slots=True)
class _Place:
    """The context of a shorthand rule, with the number of related variables so far."""

    block: ast.Block
    vocabulary: Vocabulary
    problems: Problems
    related: int = 0
    is_sound: bool = field(default=True)

    @property
    def type(self) -> str | None:
        return self.block.name.text if self.block.name else None

    @property
    def title(self) -> str:
        return f"{self.block.kind} {shown(self.type)}" if self.type else "the `global` block"

    def refuse(self, span: Span, message: str, hint: str = "") -> ast.Formula:
        self.problems.error(span, message, hint)
        return self.give_up(span)

    def give_up(self, span: Span) -> ast.Formula:
        """Drop the rule because of an error that is reported elsewhere."""
        self.is_sound = False
        return ast.Truth(False, span)


def longhand_rules(policy: ast.Policy, vocabulary: Vocabulary, problems: Problems) -> list[ast.Rule]:
    """Return all rules of the policy in text order, with shorthand expanded."""
    rules: list[ast.Rule] = []
    seen: set[str | None] = set()  # a second block of the same name has been rejected; its names are in no vocabulary
    for item in policy.items:
        if isinstance(item, ast.Rule):
            rules.append(item)
        elif isinstance(item, ast.Block):
            name = item.name.text if item.name else None
            if name not in seen and (name is None or name in vocabulary.types):
                rules += _rules_of(item, vocabulary, problems)
            seen.add(name)
    return rules


def _rules_of(block: ast.Block, vocabulary: Vocabulary, problems: Problems) -> Iterator[ast.Rule]:
    for item in block.items:
        if isinstance(item, ast.Shorthand):
            place = _Place(block, vocabulary, problems)
            head = _head(item.head, place)
            body = _expanded(item.body, place)
            if head and place.is_sound:
                yield ast.Rule(head, body, item.span)


# ---- heads -----------------------------------------------------------------------------------------------


def _head(reference: ast.Reference, place: _Place) -> ast.Head | None:
    """Return the head: `"read"` -> `has_permission(actor: Actor, "read", resource: Repo)`; `role` -> `role: String`."""
    kind = reference.name if reference.is_word else _head_kind(reference, place)
    if kind is None:
        return None
    span = reference.span
    params: list[ast.Parameter | ast.Term] = [_typed("actor", ACTOR, span), _name_term(reference)]
    if reference.is_word:
        params[1] = _typed(reference.name, STRING, span)
    if place.type:
        params.append(_typed("resource", place.type, span))
    return ast.Head(ast.Name(PREDICATES[kind], span), tuple(params), span)


def _head_kind(reference: ast.Reference, place: _Place) -> str | None:
    kinds = _meanings(place, reference.name)
    if not kinds:
        _refuse_undeclared(reference.name, reference.span, place)
    elif RELATION in kinds:
        message = f"{shown(reference.name)} is a relation; shorthand can grant only roles and permissions"
        place.refuse(reference.span, message, "write a rule for `has_relation` outside of the block")
    else:
        return min(kinds)
    return None


def _meanings(place: _Place, word: str) -> frozenset[str]:
    if place.type:
        return place.vocabulary.meanings(place.type, word)
    return _global_meanings(place.vocabulary, word)


def _global_meanings(vocabulary: Vocabulary, word: str) -> frozenset[str]:
    kinds = {ROLE: vocabulary.global_roles, PERMISSION: vocabulary.global_permissions}
    return frozenset(kind for kind, words in kinds.items() if word in words)


def _refuse_undeclared(word: str, span: Span, place: _Place) -> ast.Formula:
    known = place.vocabulary
    words = known.words(place.type) if place.type else [*known.global_roles, *known.global_permissions]
    hint = did_you_mean(word, words) or f"add it to the block's {_LISTS[ROLE]} or {_LISTS[PERMISSION]}"
    return place.refuse(span, f"{shown(word)} is not declared in {place.title}", hint)


# ---- bodies ---------------------------------------------------------------------------------------------------


def _expanded(formula: ast.Formula, place: _Place) -> ast.Formula:
    match formula:
        case ast.And(parts, span):
            return _conjunction([_expanded(part, place) for part in parts], span)
        case ast.Or(parts, span):
            return ast.Or(tuple(_expanded(part, place) for part in parts), span)
        case ast.Not(inner, span):
            return ast.Not(_expanded(inner, place), span)
        case ast.GlobalReference():
            return _global(formula, place)
        case ast.Reference():
            relation = formula.relation
            return _direct(formula, place) if relation is None else _on_relation(formula, relation, place)
        case ast.Call() if place.type is None:
            return _global_call(formula, place)
    return formula


def _direct(reference: ast.Reference, place: _Place) -> ast.Formula:
    """Expand `"reader"`: a role, permission or relation of the resource itself."""
    if place.type is None:
        return _global(ast.GlobalReference(reference.name, reference.is_word, reference.span), place)
    kinds = frozenset({reference.name}) if reference.is_word else _meanings(place, reference.name)
    if not kinds:
        return _refuse_undeclared(reference.name, reference.span, place)
    resource = ast.Variable("resource", reference.span)
    if RELATION in kinds:
        return _led_to_actor(reference, place.type, resource, place)
    return _held(reference, min(kinds), resource)


def _held(reference: ast.Reference, kind: str, thing: ast.Variable) -> ast.Formula:
    """Return "the actor has the role or permission on the thing"; a bare word `role` stands for any role."""
    actor = ast.Variable("actor", reference.span)
    call = _call(PREDICATES[kind], reference.span, actor, _name_term(reference), thing)
    return _with_text_word(reference, call)


def _with_text_word(reference: ast.Reference | ast.GlobalReference, call: ast.Formula) -> ast.Formula:
    if not reference.is_word:
        return call
    word = ast.Variable(reference.name, reference.span)
    return _conjunction([_matches(word, STRING, reference.span), call], reference.span)


def _led_to_actor(reference: ast.Reference, type_name: str, thing: ast.Variable, place: _Place) -> ast.Formula:
    """Return "the relation leads from the thing to the actor", with the actor restricted to the relation's type."""
    known = place.vocabulary
    target = _relation_target(known, type_name, reference.name)
    if target not in known.masks:
        return place.give_up(reference.span)
    if not known.masks.get(target, 0) & known.masks[ACTOR]:
        hint = f'to use a role or permission there, write `"..." on "{reference.name}"`'
        message = f"relation {shown(reference.name)} has the type {shown(target)}, which is not an actor"
        return place.refuse(reference.span, message, hint)
    actor = ast.Variable("actor", reference.span)
    link = _call("has_relation", reference.span, thing, _text(reference.name, reference.span), actor)
    return _conjunction([_matches(actor, target, reference.span), link], reference.span)


def _relation_target(known: Vocabulary, type_name: str, relation: str) -> str:
    if type_name in known.types:
        return known.types[type_name].relations.get(relation, "")
    below = (known.types[name] for name in sorted(known.types_of(known.masks[type_name])) if name in known.types)
    targets = {found.relations[relation] for found in below if relation in found.relations}
    return targets.pop() if len(targets) == 1 else RESOURCE


def _on_relation(reference: ast.Reference, relation: str, place: _Place) -> ast.Formula:
    """Expand `"member" on "org"`: the actor is a member of what the resource's relation `org` leads to."""
    span = reference.relation_span or reference.span
    if place.type is None:
        return place.refuse(span, "the `global` block has no relations", "move the rule into a resource block")
    known = place.vocabulary.types[place.type]
    if relation not in known.relations:
        kinds = sorted(_meanings(place, relation))
        message = f"{shown(relation)} is not a relation of {place.title}"
        hint = f"it is a {kinds[0]}" if kinds else did_you_mean(relation, known.relations)
        return place.refuse(span, message, hint or "add it to the block's relations")
    target = known.relations[relation]
    if target not in place.vocabulary.masks:
        return place.give_up(span)
    place.related += 1
    related = ast.Variable(f"{relation}#{place.related}", span)
    link = _call("has_relation", span, ast.Variable("resource", span), _text(relation, span), related)
    held = _on_related(reference, relation, target, related, place)
    return _conjunction([_matches(related, target, span), link, held], reference.span)


def _on_related(
    reference: ast.Reference, relation: str, target: str, related: ast.Variable, place: _Place
) -> ast.Formula:
    if reference.is_word:
        return _held(reference, reference.name, related)
    kinds = place.vocabulary.meanings(target, reference.name)
    if len(kinds) > 1:
        message = f"{shown(reference.name)} is a {' and a '.join(sorted(kinds))} on subtypes of {shown(target)}"
        return place.refuse(reference.span, message, "write the rule outside of the block, with `matches`")
    if not kinds:
        hint = did_you_mean(reference.name, place.vocabulary.words(target))
        message = f"{shown(reference.name)} is not declared on {shown(target)}, the type of relation {shown(relation)}"
        return place.refuse(reference.span, message, hint or "add it there as a role or permission")
    if RELATION in kinds:
        return _led_to_actor(reference, target, related, place)
    return _held(reference, min(kinds), related)


# ---- the global block --------------------------------------------------------------------------------------


def _global(reference: ast.GlobalReference, place: _Place) -> ast.Formula:
    """Expand `global "admin"`: the actor has the role or permission without any resource."""
    known = place.vocabulary
    kinds = frozenset({reference.name}) if reference.is_word else _global_meanings(known, reference.name)
    if not known.has_global:
        return place.refuse(reference.span, "the policy has no `global` block", "add `global { roles = [...]; }`")
    if not kinds:
        words = [*known.global_roles, *known.global_permissions]
        hint = did_you_mean(reference.name, words) or "add it to the block's roles or permissions"
        return place.refuse(reference.span, f"{shown(reference.name)} is not declared in the `global` block", hint)
    if len(kinds) > 1:  # reported at their declaration
        return place.give_up(reference.span)
    actor = ast.Variable("actor", reference.span)
    call = _call(PREDICATES[min(kinds)], reference.span, actor, _name_term(reference))
    return _with_text_word(reference, call)


def _global_call(call: ast.Call, place: _Place) -> ast.Formula:
    for arg in call.args:
        if arg == ast.Variable("resource"):
            return place.refuse(arg.span, "the `global` block has no `resource`", "move the rule into a resource block")
    return call


# ---- pieces ----------------------------------------------------------------------------------------------------


def _call(predicate: str, span: Span, *args: ast.Term) -> ast.Call:
    return ast.Call(ast.Name(predicate, span), args, span)


def _matches(variable: ast.Variable, type_name: str, span: Span) -> ast.Matches:
    return ast.Matches(variable, ast.Name(type_name, span), span=span)


def _typed(name: str, type_name: str, span: Span) -> ast.Parameter:
    return ast.Parameter(ast.Variable(name, span), ast.Name(type_name, span), span)


def _text(text: str, span: Span) -> ast.Literal:
    return ast.Literal(Value(STRING, text), span)


def _name_term(reference: ast.Reference | ast.GlobalReference) -> ast.Term:
    if reference.is_word:
        return ast.Variable(reference.name, reference.span)
    return _text(reference.name, reference.span)


def _conjunction(parts: list[ast.Formula], span: Span) -> ast.And:
    flat = (inner for part in parts for inner in (part.parts if isinstance(part, ast.And) else (part,)))
    return ast.And(tuple(flat), span)
