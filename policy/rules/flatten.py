"""Longhand rules -> flat rules: a head, and a conjunction of literals."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from policy.language import ast
from policy.language.source import Span, shown
from policy.rules.components import reachable
from policy.rules.declarations import (
    ANONYMOUS,
    FormulaMemo,
    Mask,
    Problems,
    Vocabulary,
    alternatives,
    conjuncts,
    is_named,
    mentioned,
    union,
)
from policy.rules.program import TYPED, Atom, Compare, Literal, Member, Not, Now, Term, Var
from policy.values import INTEGER, Value

# ---- Flat rules: the result of normalization, before variables have types -----------------------------------------

PredicateKey = tuple[str, int]  # predicate and arity
UNLIMITED: Mask = -1


@dataclass(frozen=True, slots=True)
class FlatRule:
    """`bounds` has the types that the text gives a variable; `limits` those that a `not ... matches` leaves, and where.

    `limits` also has the variables of equalities, as `UNLIMITED`: they may no longer occur in any literal.
    """

    head: Atom
    body: tuple[Literal, ...]
    places: tuple[Span, ...]  # positions of the body's literals
    bounds: Mapping[Var, Mask]
    limits: Mapping[Var, tuple[Mask, Span]]
    origin: Span
    caller: int | None  # the rule whose body calls this helper predicate; None for a rule of the text


def is_made_here(predicate: str) -> bool:
    """Return whether normalization created the predicate: that of a helper rule."""
    return "#" in predicate


def flat_variables_of(rule: FlatRule) -> dict[Var, None]:
    return dict.fromkeys(variable for literal in (rule.head, *rule.body) for variable in variables_in(literal))


def variables_in(literal: Literal) -> list[Var]:
    return [term for term in terms_of(literal) if isinstance(term, Var)]


def terms_of(literal: Literal) -> tuple[Term, ...]:
    match literal:
        case Atom(_, args) | Not(Atom(_, args)):
            return args
        case Member(variable, _):
            return (variable,)
    return (literal.left, literal.right)


def uses_of(rule: FlatRule) -> Counter[Term]:
    """Return in how many literals of the body each term occurs."""
    return Counter(term for literal in rule.body for term in set(terms_of(literal)))


def key_of(atom: Atom) -> PredicateKey:
    return atom.predicate, len(atom.args)


def atoms_of(body: Iterable[Literal]) -> list[Atom]:
    """Return the atoms of a body, including negated ones."""
    found = []
    for literal in body:
        if isinstance(literal, Atom):
            found.append(literal)
        elif isinstance(literal, Not):
            found.append(literal.atom)
    return found


# ---- Remove the equalities of a conjunction by substitution -------------------------------------------------------
#     x = y and y = "a" and p(x, z)   ->   x, y are "a";  p("a", z)
#
# A variable that equals `@current_unix_time` is replaced by it. But a head cannot contain the time, so a variable of
# the head is kept, with two comparisons:
#
#     p(x) if x = @current_unix_time  ->  p(x) if x <= @current_unix_time and x >= @current_unix_time

NOW = Now()
Substitution = dict[Var, Term]


@dataclass(slots=True)
class Solved:
    substitution: Substitution = field(default_factory=dict)
    compares: list[tuple[Compare, Span]] = field(default_factory=list)  # what substitution cannot express
    contradiction: tuple[Span, Term, Term] | None = None


def solve(equations: Iterable[tuple[Term, Term, Span]], kept: tuple[Term, ...]) -> Solved:
    """Return a substitution that satisfies all equations. It prefers the variables in `kept` as representatives."""
    solved = Solved()
    joined: dict[Term, list[tuple[Term, Span]]] = {}
    for left, right, span in equations:
        joined.setdefault(left, []).append((right, span))
        joined.setdefault(right, []).append((left, span))
    seen: set[Term] = set()
    for term in joined:
        if term not in seen:
            members = reachable((term,), lambda each: [other for other, _ in joined[each]])
            seen.update(members)
            _settle(members, max((joined[each][-1][1] for each in members), key=lambda span: span.start), kept, solved)
    return solved


def substituted(term: Term, by: Mapping[Var, Term]) -> Term:
    """Apply the substitution to a term."""
    return by.get(term, term) if isinstance(term, Var) else term


def _settle(members: list[Term], span: Span, kept: tuple[Term, ...], solved: Solved) -> None:
    values = [term for term in members if isinstance(term, Value)]
    variables = [term for term in members if isinstance(term, Var)]
    is_now = NOW in members
    if len(values) > 1 or (is_now and values and values[0].type != INTEGER):
        solved.contradiction = (span, values[0], values[1] if len(values) > 1 else NOW)
        return
    chosen = _representative(values, variables, kept, is_now)
    solved.substitution.update((variable, chosen) for variable in variables if variable != chosen)
    if is_now and isinstance(chosen, Value):
        solved.compares.append((Compare("=", NOW, chosen), span))
    elif is_now and isinstance(chosen, Var):
        solved.compares += [(Compare("<=", chosen, NOW), span), (Compare(">=", chosen, NOW), span)]


def _representative(values: list[Value], variables: list[Var], kept: tuple[Term, ...], is_now: bool) -> Term:
    if values:
        return values[0]
    present = set(variables)
    in_head = [term for term in kept if term in present]
    if in_head:
        return in_head[0]
    return NOW if is_now else variables[0]


# ---- conjunction --------------------------------------------------------------------------------------------------
# The state of flattening a conjunction: its literals so far, and what the text says about its variables' types.


@dataclass(slots=True)
class Flattening:
    """The flattening of a whole policy: the flat rules so far."""

    vocabulary: Vocabulary
    problems: Problems
    rules: list[FlatRule] = field(default_factory=list)
    made: int = 0  # number of helper predicates so far
    memo: FormulaMemo = field(default_factory=dict)  # of the current rule
    variables: dict[str, Var] = field(default_factory=dict)  # of the current rule; `_` ones are numbered

    def variable(self, name: str) -> Var:
        if name == ANONYMOUS:
            name = f"_#{len(self.variables) + 1}"
        return self.variables.get(name) or self.variables.setdefault(name, Var(name))


@dataclass(slots=True)
class Conjunction:
    """`env` is the substitution from equalities; for `bounds` and `limits` see `FlatRule`."""

    state: Flattening
    env: dict[Var, Term]
    bounds: dict[Var, Mask]
    limits: dict[Var, tuple[Mask, Span]] = field(default_factory=dict)
    literals: list[tuple[Literal, Span]] = field(default_factory=list)
    is_false: bool = False

    def term(self, written: ast.Term) -> Term:
        match written:
            case ast.Variable(name):
                variable = self.state.variable(name)
                return self.env.get(variable, variable) if self.env else variable
            case ast.Literal():
                return self.value(written)
        return NOW

    def value(self, written: ast.Literal) -> Value:
        self.state.vocabulary.check_literal(written, self.state.problems)
        return written.value

    def add(self, literal: Literal, span: Span) -> None:
        self.literals.append((literal, span))

    def fail(self, span: Span, message: str) -> None:
        """Mark the conjunction as unsatisfiable, and warn: it will be dropped."""
        self.is_false = True
        self.state.problems.warn(span, message, "the rule or this part of it has no effect")

    def bound(self, term: Term, mask: Mask | None, span: Span, operator: str = "") -> bool:
        """Restrict the term to these types; if none of its types remains, report a problem and return False."""
        if mask is None:
            return True
        known = self.bounds.get(term) if isinstance(term, Var) else self.types_of(term)
        if not known and not isinstance(term, Var):
            return False  # a value of an unknown type, which `value` has reported
        if known and mask and not known & mask:
            self._refuse_conflict(term, known, mask, span, operator)
            return False
        if isinstance(term, Var):
            self.bounds[term] = mask if known is None else known & mask
        return True

    def types_of(self, constant: Value | Now) -> Mask:
        return self.state.vocabulary.bits.get(INTEGER if isinstance(constant, Now) else constant.type, 0)

    def _refuse_conflict(self, term: Term, known: Mask, mask: Mask, span: Span, operator: str) -> None:
        describe, problems = self.state.vocabulary.describe, self.state.problems
        if operator:
            hint = "use `=` or `!=`, which compare values of any type"
            compares = f"`{operator}` compares {TYPED[operator].type}s"
            problems.error(span, f"{compares}, but {shown(str(term))} is {describe(known)}", hint)
        else:
            hint = "no value has both types; use another variable"
            problems.error(span, f"{shown(str(term))} cannot be {describe(mask)}: it is {describe(known)}", hint)


# ---- literals -----------------------------------------------------------------------------------------------------
# Conjuncts that become literals without helper rules: calls, comparisons, lists, `matches`, and these under `not`.
#
#     1 < 2          nothing: it is true           not x matches T        a limit on the types of x
#     x matches T    a bound on the types of x     not x = y              x != y
#     x in ["a"]     a list that contains x        not x in ["a", "b"]    x != "a" and x != "b"


def add_literal(part: ast.Formula, conjunction: Conjunction) -> bool:
    """Add the conjunct's literals; return False if it needs helper rules."""
    match part:
        case ast.Call(predicate, args, span):
            conjunction.add(Atom(predicate.text, tuple(map(conjunction.term, args))), span)
        case ast.Comparison("="):
            pass  # `_` equals anything
        case ast.Comparison(operator, left, right, span):
            _compare(operator, conjunction.term(left), conjunction.term(right), span, conjunction)
        case ast.Membership(term, values) if values and is_named(term) and conjunction.term(term) == NOW:
            return False
        case ast.Membership():
            _member(part, conjunction)
        case ast.Matches():
            _match(part, conjunction)
        case ast.Truth(value, span):
            if not value:
                conjunction.fail(span, "this condition is never true")
        case ast.Not(inner, span):
            return _add_negated(inner, span, conjunction)
        case _:
            return False
    return True


def _add_negated(inner: ast.Formula, span: Span, conjunction: Conjunction) -> bool:
    match inner:
        case ast.Call(predicate, args):
            conjunction.add(Not(Atom(predicate.text, tuple(map(conjunction.term, args)))), span)
        case ast.Comparison("=", left, right):
            _compare("!=", conjunction.term(left), conjunction.term(right), span, conjunction)
        case ast.Membership(term, values):
            for value in values:
                _compare("!=", conjunction.term(term), conjunction.term(value), span, conjunction)
        case ast.Matches():
            _exclude(inner, conjunction)
        case ast.Truth(value):
            if value:
                conjunction.fail(span, "this condition is never true")
        case _:
            return False
    return True


def _compare(operator: str, left: Term, right: Term, span: Span, conjunction: Conjunction) -> None:
    if operator in TYPED:
        wanted = conjunction.state.vocabulary.bits[TYPED[operator].type]
        sound = [conjunction.bound(term, wanted, span, operator) for term in (left, right)]
        if not all(sound):
            return
    if isinstance(left, Var) or isinstance(right, Var) or {left, right} > {NOW}:
        outcome = False if left == right and operator in ("!=", "<", ">") else None
    else:
        outcome = _decided(operator, left, right)
    if outcome is None:
        conjunction.add(Compare(operator, left, right), span)
    elif not outcome:
        conjunction.fail(span, f"{shown(f'{left} {operator} {right}')} is never true")


def _decided(operator: str, left: Value | Now, right: Value | Now) -> bool:
    if operator in ("=", "!="):
        return (left == right) == (operator == "=")
    if isinstance(left, Now) or isinstance(right, Now):
        return left == right and "=" in operator
    return TYPED[operator].holds(left.id, right.id)


def _member(part: ast.Membership, conjunction: Conjunction) -> None:
    if not is_named(part.term) and part.values:
        return
    term, values = conjunction.term(part.term), tuple(dict.fromkeys(map(conjunction.value, part.values)))
    if isinstance(term, Var) and values:
        bits = conjunction.state.vocabulary.bits
        conjunction.bound(term, union(bits.get(value.type, 0) for value in values), part.span)
        conjunction.add(Member(term, values), part.span)
    elif term not in values:
        message = f"{shown(str(term))} is not in the list" if values else "the list is empty"
        conjunction.fail(part.span, message)


def _match(part: ast.Matches, conjunction: Conjunction) -> None:
    mask = conjunction.state.vocabulary.mask_of(part.type, conjunction.state.problems, part.exact)
    if is_named(part.variable):
        conjunction.bound(conjunction.term(part.variable), mask, part.span)


def _exclude(part: ast.Matches, conjunction: Conjunction) -> None:
    """Add `not x matches T` as a limit on the types of x."""
    mask = conjunction.state.vocabulary.mask_of(part.type, conjunction.state.problems, part.exact)
    term = conjunction.term(part.variable)
    if mask is None:
        return
    if isinstance(term, Var):
        before, _ = conjunction.limits.get(term, (UNLIMITED, part.span))
        conjunction.limits[term] = (before & ~mask, part.span)
    elif conjunction.types_of(term) & mask:
        conjunction.fail(part.span, f"{shown(str(term))} is always {shown(part.type.text)}")


# ---- Longhand rules -> flat rules: a head and a conjunction of literals -------------------------------------------
#     p(x) if q(x) and (r(x, y) or x = "a") and not (s(x, z) and t(z));
#
#     p(x) if q(x) and or#1(x) and not not#2(x);
#     or#1(x) if r(x, y);      or#1("a");      not#2(x) if s(x, z) and t(z);
#
# A nested `or`, and a `not` of anything but one atom, become rules of a new helper predicate. Its arguments are the
# variables that the part shares with the rest of the rule; the part's other variables are existential in the helper.
# (`not not F` becomes a plain call of a helper, so that F's own variables stay local too.) So the output is about as
# large as the text. A name with `#` cannot occur in a text.
#
# `=` is removed by substitution, and `matches` becomes a bound on a variable's types. Constants (`true`, comparisons of
# two constants, a constant's type) are folded here, and a conjunction that is false is dropped.

MAX_VARIABLES = 1_000  # per rule: the variables that a part shares are computed at every level of nesting


def flat_rules(rules: Iterable[ast.Rule], vocabulary: Vocabulary, problems: Problems) -> list[FlatRule]:
    state = Flattening(vocabulary, problems)
    for rule in rules:
        state.memo.clear()
        state.variables.clear()
        _flatten_rule(rule, state)
    return state.rules


# ---- rules of the text --------------------------------------------------------------------------------


def _flatten_rule(rule: ast.Rule, state: Flattening) -> None:
    conjunction = Conjunction(state, {}, {})
    terms = tuple(_parameter(param, conjunction) for param in rule.head.params)
    head = Atom(rule.head.predicate.text, terms)
    for formula in [None] if rule.body is None else alternatives(rule.body):
        _flatten(head, formula, conjunction.bounds, {}, rule.span, None, state)


def _parameter(param: ast.Parameter | ast.Term, conjunction: Conjunction) -> Term:
    if isinstance(param, ast.Parameter):
        variable = conjunction.term(param.variable)
        mask = conjunction.state.vocabulary.mask_of(param.type, conjunction.state.problems)
        conjunction.bound(variable, mask, param.span)
        return variable
    return conjunction.term(param)


def _flatten(
    head: Atom, formula: ast.Formula | None, bounds: Mapping[Var, Mask], env: Mapping[Var, Term], origin: Span,
    caller: int | None, state: Flattening,
) -> bool:  # fmt: skip
    """Add the rule `head if formula`, followed by the helper rules that it needs; return False if it can never hold."""
    index = len(state.rules)
    placeholder = FlatRule(head, (), (), {}, {}, origin, caller)
    state.rules.append(placeholder)
    conjunction = Conjunction(state, dict(env), dict(bounds))
    parts = _without_equalities(conjuncts(formula), head, conjunction)
    head = Atom(head.predicate, tuple([substituted(arg, conjunction.env) for arg in head.args]))
    compound = [part for part in parts if not add_literal(part, conjunction)]
    for part, shared in _shared_variables(compound, parts, head, conjunction):
        _add_compound(part, shared, index, conjunction)
    if conjunction.is_false:
        del state.rules[index:]
        return False
    if compound:
        conjunction.literals.sort(key=lambda item: item[1].start)
    body = tuple(literal for literal, _ in conjunction.literals)
    places = tuple(span for _, span in conjunction.literals)
    state.rules[index] = FlatRule(head, body, places, conjunction.bounds, conjunction.limits, origin, caller)
    return True


def _without_equalities(parts: list[ast.Formula], head: Atom, conjunction: Conjunction) -> list[ast.Formula]:
    """Return the other conjuncts; the equalities become part of the conjunction's substitution."""
    equations = []
    for part in parts:
        match part:
            case ast.Comparison("=", left, right, span) if is_named(left) and is_named(right):
                equations.append((conjunction.term(left), conjunction.term(right), span))
    if not equations:
        return parts
    solved = solve(equations, head.args)
    if solved.contradiction:
        span, one, other = solved.contradiction
        conjunction.fail(span, f"{shown(str(one))} never equals {shown(str(other))}")
    conjunction.literals += solved.compares
    bounds, conjunction.bounds = conjunction.bounds, {}
    changes, known = solved.substitution, conjunction.state.vocabulary
    for _, term, span in equations:
        if isinstance(term := substituted(term, changes), Var):
            conjunction.limits[term] = (UNLIMITED, span)
    conjunction.env = {variable: substituted(term, changes) for variable, term in conjunction.env.items()} | changes
    for variable, mask in bounds.items():
        conjunction.bound(conjunction.env.get(variable, variable), mask, equations[0][2])
    for compare, span in solved.compares:
        conjunction.bound(compare.left, known.bits[INTEGER], span)
    return [part for part in parts if not (isinstance(part, ast.Comparison) and part.operator == "=")]


# ---- conjuncts that need helper rules ---------------------------------------------------------------------------


def _shared_variables(
    compound: list[ast.Formula], parts: list[ast.Formula], head: Atom, conjunction: Conjunction
) -> list[tuple[ast.Formula, tuple[Var, ...]]]:
    """Return each compound conjunct with the variables that it shares with the head, an equality or a conjunct."""
    if not compound:
        return []
    used = {id(part): _variables_in(part, conjunction) for part in parts}
    uses = Counter(variable for variables in used.values() for variable in variables)
    outside = {*(arg for arg in head.args if isinstance(arg, Var)), *conjunction.limits}
    if any(len(variables) > MAX_VARIABLES for variables in used.values()):
        span, hint = compound[0].span, "move parts of it into separate rules"
        conjunction.state.problems.error(span, f"the rule has more than {MAX_VARIABLES:,} variables", hint)
        return []
    found = []
    for part in compound:
        shared = (variable for variable in used[id(part)] if uses[variable] > 1 or variable in outside)
        found.append((part, tuple(sorted(shared, key=lambda variable: variable.name))))
    return found


def _variables_in(part: ast.Formula, conjunction: Conjunction) -> frozenset[Var]:
    terms = (conjunction.term(ast.Variable(name)) for name in mentioned(part, conjunction.state.memo))
    return frozenset(term for term in terms if isinstance(term, Var))


def _add_compound(part: ast.Formula, shared: tuple[Var, ...], index: int, conjunction: Conjunction) -> None:
    match part:
        case ast.Not(ast.Not(inner)):
            is_negated, name, formulas = False, "not#", alternatives(inner)
        case ast.Not(inner):
            is_negated, name, formulas = True, "not#", alternatives(inner)
        case ast.Membership(term, values, span):
            is_negated, name = False, "or#"
            formulas = [ast.Comparison("=", term, value, span) for value in values]
        case _:
            is_negated, name, formulas = False, "or#", alternatives(part)
    conjunction.state.made += 1
    call = Atom(f"{name}{conjunction.state.made}", shared)
    bounds = {variable: conjunction.bounds[variable] for variable in shared if variable in conjunction.bounds}
    is_possible = False
    for formula in formulas:  # not a comprehension, which would add a frame to each level of this recursion
        is_possible |= _flatten(call, formula, bounds, conjunction.env, formula.span, index, conjunction.state)
    if is_possible:
        conjunction.add(Not(call) if is_negated else call, part.span)
    elif not is_negated:
        conjunction.fail(part.span, "no alternative of this can be true")
