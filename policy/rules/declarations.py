"""Blocks -> Vocabulary: the types, roles, permissions and relations of a policy, and errors in their declarations."""

from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cached_property

from policy.language import ast
from policy.language.source import MAX_PROBLEMS, PolicyRejected, Problem, Source, Span, shown
from policy.rules.components import Components, reachable
from policy.rules.program import TypeDef, Types
from policy.values import ABSTRACT, ACTOR, INTEGER, PRIMITIVES, RESOURCE, STRING

# ---- Errors and warnings of the passes, with hints ----------------------------------------------------------------

MAX_CANDIDATES = 2_000  # a search among more names is not worth its cost


@dataclass(slots=True)
class Problems:
    """Collects the problems that all passes find in one text, so that they are reported together.

    At `MAX_PROBLEMS` errors the text is rejected at once: no one reads more, and hints take time.
    """

    source: Source
    errors: list[Problem] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)

    def error(self, span: Span, message: str, hint: str = "") -> None:
        problem = Problem(message, span, hint)
        if problem not in self.errors:
            self.errors.append(problem)
        if len(self.errors) >= MAX_PROBLEMS:
            self.reject_errors()

    def warn(self, span: Span, message: str, hint: str = "") -> None:
        self.warnings.append(Problem(message, span, hint, severity="warning"))

    def reject_errors(self) -> None:
        if self.errors:
            raise PolicyRejected(self.source, _sorted(self.errors))

    def sorted_warnings(self) -> tuple[Problem, ...]:
        return _sorted(self.warnings)


def _sorted(problems: list[Problem]) -> tuple[Problem, ...]:
    """Return each problem once, in text order, up to `MAX_PROBLEMS`."""
    unique = dict.fromkeys(sorted(problems, key=lambda problem: (problem.span.start, problem.message)))
    return tuple(unique)[:MAX_PROBLEMS]


def did_you_mean(word: str, candidates: Iterable[str]) -> str:
    near = nearest(word, candidates)
    return "" if near is None else f"did you mean {shown(near)}?"


def nearest(word: str, candidates: Iterable[str]) -> str | None:
    """Return the name that is most similar to a word, if any is similar enough."""
    names = sorted(set(candidates))[:MAX_CANDIDATES]
    folded = {name.lower(): name for name in reversed(names)}
    close = get_close_matches(word.lower(), folded, n=1, cutoff=0.6)
    return folded[close[0]] if close else None


def listed(names: Iterable[str], none: str = "none") -> str:
    """Format names for a message: `a`, `b` and 3 more."""
    names = list(names)
    first = ", ".join(map(shown, names[:5]))
    return f"{first} and {len(names) - 5} more" if len(names) > 5 else first or none


def instead(word: str, names: Sequence[str]) -> str:
    """Return what may have been meant by an unknown word, and what there is: ` (did you mean `read`? declared: …)`."""
    meant = did_you_mean(word, names)
    known = f"declared: {listed(names)}" if names else "none are declared"
    return f" ({meant} {known})" if meant else f" ({known})"


# ---- Helpers for formulas of the syntax tree, shared by several passes --------------------------------------------
# They use an explicit stack, so that a deeply nested text does not exceed Python's recursion limit.

NameSet = frozenset[str]
FormulaMemo = dict[int, tuple[ast.Formula, NameSet]]  # by id(); the formula is kept alive, so that its id is not reused
ANONYMOUS = "_"


def conjuncts(formula: ast.Formula | None) -> list[ast.Formula]:
    """Flatten a conjunction, with at most two `not` on any conjunct: `a and (b and c)` -> a, b, c."""
    found: list[ast.Formula] = []
    stack = [] if formula is None else [formula]
    while stack:
        match stack.pop():
            case ast.And(parts):
                stack += reversed(parts)
            case ast.Not(ast.Not(ast.Not() as inner)):
                stack.append(inner)
            case ast.Membership(term, (value,), span):
                found.append(ast.Comparison("=", term, value, span))
            case ast.Or() as alternatives_:
                found.append(_as_membership(alternatives_) or alternatives_)
            case other:
                found.append(other)
    return found


def alternatives(formula: ast.Formula) -> list[ast.Formula]:
    """Return the parts of a disjunction; any other formula is its only part."""
    parts = conjuncts(formula)
    if len(parts) == 1 and isinstance(parts[0], ast.Or):
        return list(parts[0].parts)
    return [formula]


def _as_membership(formula: ast.Or) -> ast.Membership | None:
    """Merge equalities on one variable: `x = "a" or x in ["b", "c"]` -> `x in ["a", "b", "c"]`."""
    values: list[ast.Literal] = []
    terms = set()
    for part in formula.parts:
        match part:
            case ast.Comparison("=", ast.Variable() as term, ast.Literal() as value) | ast.Comparison(
                "=", ast.Literal() as value, ast.Variable() as term
            ):
                values.append(value)
            case ast.Membership(ast.Variable() as term, listed):
                values += listed
            case _:
                return None
        terms.add(term)
    only = terms.pop()
    is_one = not terms and only.name != ANONYMOUS and len(values) > 1
    return ast.Membership(only, tuple(values), formula.span) if is_one else None


def mentioned(formula: ast.Formula, memo: FormulaMemo) -> NameSet:
    """Return the variables of a formula except `_`. With `memo`, calls for all parts of a formula take linear time."""
    stack = [formula]
    while stack:
        node = stack[-1]
        waiting = [part for part in parts_of(node) if id(part) not in memo]
        if waiting:
            stack += waiting
            continue
        stack.pop()
        memo[id(node)] = (node, _own(node).union(*(memo[id(part)][1] for part in parts_of(node))))
    return memo[id(formula)][1]


def parts_of(formula: ast.Formula) -> tuple[ast.Formula, ...]:
    match formula:
        case ast.And(parts) | ast.Or(parts):
            return parts
        case ast.Not(inner):
            return (inner,)
    return ()


def variables_of(formula: ast.Formula) -> tuple[ast.Variable, ...]:
    """Return the variables of an atomic formula, with repetitions."""
    match formula:
        case ast.Call(_, args):
            return tuple(arg for arg in args if isinstance(arg, ast.Variable))
        case ast.Comparison(_, left, right):
            return tuple(term for term in (left, right) if isinstance(term, ast.Variable))
        case ast.Membership(ast.Variable() as variable, _) | ast.Matches(variable, _):
            return (variable,)
    return ()


def _own(formula: ast.Formula) -> NameSet:
    return frozenset(variable.name for variable in variables_of(formula)) - {ANONYMOUS}


def simple_formulas(formula: ast.Formula | None) -> Iterator[ast.Formula]:
    """Yield the atomic parts of the formula."""
    stack = [] if formula is None else [formula]
    while stack:
        node = stack.pop()
        inner = parts_of(node)
        stack += reversed(inner)
        if not inner:
            yield node


def is_named(term: ast.Term) -> bool:
    """Return whether the term is anything but `_`."""
    return not (isinstance(term, ast.Variable) and term.name == ANONYMOUS)


# ---- implied ------------------------------------------------------------------------------------------------------
# Implied types: types that no block declares, but that rules clearly use, because they query facts of them.
#
#     actor User {}
#     resource Repo { permissions = ["read"]; }
#     has_permission(user: User, action: String, repo: Repo) if
#       role matches Role and has_role(user, role, repo) and grants_permission(role, action);
#
# No rule defines `grants_permission`, so this condition queries stored facts, and implies that there is a type `Role`.
# A head's parameter of an undeclared type implies the type too. A call of a built-in predicate (`has_role`), or of one
# that rules define, implies nothing: an undeclared type there is an error. A name similar to a declared type, or to
# another implied one, is an error as well.

MAX_IMPLIED = 50  # each is compared with every declared name
_SHARED = ("allow", "has_permission", "has_role", "has_relation")

Near = Callable[[str, list[str]], str]  # returns "did you mean ...?" for a name similar to one of the others, or ""


def implied_types(policy: ast.Policy, declared: list[str], near: Near, problems: Problems) -> tuple[str, ...]:
    """Return the types that rules imply, each with a warning; the most frequently named come first."""
    rules = [item for item in policy.items if isinstance(item, ast.Rule)]
    named = [name for rule in rules for _, name in typed_in(rule)]
    known = set(declared)
    first = {name.text: name for name in reversed(named) if name.text not in known}
    if not 0 < len(first) <= MAX_IMPLIED:
        return ()
    spoken_for = _spoken_for(rules, first)
    found: list[str] = []
    for name, _ in Counter(name.text for name in named).most_common():
        if name in spoken_for and not near(name, [*declared, *found]):
            found.append(name)
            hint = f"if this is intended, declare it: `resource {name} {{}}`"
            problems.warn(first[name].span, f"type {shown(name)} is used in rules, but not declared", hint)
    return tuple(found)


def typed_in(rule: ast.Rule) -> Iterator[tuple[str, ast.Name]]:
    """Yield each type that the rule names, with the variable that has it."""
    for param in rule.head.params:
        if isinstance(param, ast.Parameter):
            yield param.variable.name, param.type
    for formula in simple_formulas(rule.body):
        if isinstance(formula, ast.Matches):
            yield formula.variable.name, formula.type


def _spoken_for(rules: list[ast.Rule], undeclared: Container[str]) -> set[str]:
    defined = {(rule.head.predicate.text, len(rule.head.params)) for rule in rules}
    found: set[str] = set()
    for rule in rules:
        typed = [(variable, name.text) for variable, name in typed_in(rule) if name.text in undeclared]
        if typed:
            in_head = {each.type.text for each in rule.head.params if isinstance(each, ast.Parameter)}
            asked = _asked_of_their_own(rule, defined)
            found.update(name for variable, name in typed if name in in_head or variable in asked)
    return found


def _asked_of_their_own(rule: ast.Rule, defined: Container[tuple[str, int]]) -> set[str]:
    """Return the variables in calls of predicates that are neither built in nor defined by rules."""
    calls = (formula for formula in simple_formulas(rule.body) if isinstance(formula, ast.Call))
    own = (call for call in calls if not _is_shared(call, defined))
    return {variable.name for call in own for variable in variables_of(call)} - {ANONYMOUS}


def _is_shared(call: ast.Call, defined: Container[tuple[str, int]]) -> bool:
    return call.predicate.text in _SHARED or (call.predicate.text, len(call.args)) in defined


# ---- declarations -------------------------------------------------------------------------------------------------
# Blocks -> Vocabulary: which types exist, what they inherit, and which roles, permissions and relations they have.
#
#     actor User {}                                     types    User: actor, Folder: resource, ...
#     resource Folder { roles = ["reader"]; }     ->   members  Resource -> {User, Folder, Doc}, Folder -> {Folder, Doc}
#     resource Doc extends Folder {}                    names    Doc has the role "reader" too
#
# A set of types is a bit mask with one bit for each concrete type: passes compute tens of thousands of intersections
# and unions of such sets.

Mask = int
ROLE, PERMISSION, RELATION = "role", "permission", "relation"
PREDICATES = {ROLE: "has_role", PERMISSION: "has_permission", RELATION: "has_relation"}
MAX_TYPES = 1_000  # type sets and inheritance grow quadratically with it
_LISTS = {"roles": "a list of strings", "permissions": "a list of strings", "relations": "`{ name: Type }`"}


@dataclass(frozen=True)
class Vocabulary:
    types: Mapping[str, TypeDef]  # declared actors and resources, including inherited names; without implied types
    masks: Mapping[str, Mask]  # every usable type name -> the bits of its concrete types
    names: tuple[str, ...]  # the concrete types, in the order of their bits
    global_roles: tuple[str, ...]
    global_permissions: tuple[str, ...]
    has_global: bool

    @cached_property
    def everything(self) -> Mask:
        return (1 << len(self.names)) - 1

    @cached_property
    def bits(self) -> Mapping[str, Mask]:
        """Return the bit of each concrete type."""
        return {name: 1 << index for index, name in enumerate(self.names)}

    @cached_property
    def _sets(self) -> dict[Mask, Types]:
        return {}

    def types_of(self, mask: Mask) -> Types:
        """Convert a mask to a frozenset of names; equal sets are the same object."""
        found = self._sets.get(mask)
        if found is None:
            found = frozenset(name for index, name in enumerate(self.names) if mask >> index & 1)
            self._sets[mask] = found
        return found

    def describe(self, mask: Mask) -> str:
        """Format a set for messages: as a single name that covers exactly it, if there is one, else as a list."""
        for name, known in self.masks.items():
            if known == mask:
                return shown(name)
        return listed(sorted(self.types_of(mask)))

    def mask_of(self, name: ast.Name, problems: Problems, exact: bool = False) -> Mask | None:
        """Return the concrete types that the name covers; if it is unknown, report a problem and return None."""
        mask = self.bits.get(name.text) if exact else self.masks.get(name.text)
        if mask is None and exact and name.text in self.masks:
            problems.error(
                name.span, f"`matches!` needs a concrete type; {shown(name.text)} is abstract", "use `matches`"
            )
        elif mask is None:
            problems.error(name.span, f"unknown type {shown(name.text)}", self.advice_on_type(name.text))
        return mask

    def advice_on_type(self, name: str) -> str:
        return near_type(name, self.masks) or f"declare it: `resource {name} {{}}`"

    def check_literal(self, literal: ast.Literal, problems: Problems) -> None:
        name = literal.value.type
        if name in self.bits:
            return
        span = literal.type_span or literal.span
        if name in ABSTRACT:
            problems.error(span, f"{shown(name)} is abstract, so it has no entities", "use a declared type")
        else:
            problems.error(span, f"unknown type {shown(name)}", self.advice_on_type(name))

    def meanings(self, type_name: str, word: str) -> frozenset[str]:
        """Return what a name is on a type: role, permission or relation. An abstract type has its subtypes' names."""
        if type_name in self.types:
            return _meanings(self.types[type_name], word)
        below = self.types_of(self.masks.get(type_name, 0))
        return frozenset().union(*(_meanings(self.types[name], word) for name in below if name in self.types))

    def words(self, type_name: str) -> list[str]:
        """Return every name declared on a type, for hints."""
        below = [type_name] if type_name in self.types else self.types_of(self.masks.get(type_name, 0))
        found = [self.types[name] for name in below if name in self.types]
        return [word for known in found for word in (*known.roles, *known.permissions, *known.relations)]


def _meanings(known: TypeDef, word: str) -> frozenset[str]:
    kinds = {ROLE: known.roles, PERMISSION: known.permissions, RELATION: known.relations}
    return frozenset(kind for kind, words in kinds.items() if word in words)


def vocabulary_of(policy: ast.Policy, problems: Problems) -> Vocabulary:
    blocks = _unique_blocks(policy, problems)
    parents = _parents(blocks, problems)
    implied = implied_types(policy, [*filter(None, blocks), *ABSTRACT, *PRIMITIVES], near_type, problems)
    own = {name: _own_names(block, problems) for name, block in blocks.items() if name is not None}
    below = _subtypes(own, parents)
    concrete = (*own, *implied, *PRIMITIVES)
    bits = {name: 1 << index for index, name in enumerate(concrete)}
    masks = dict(bits) | {name: union(bits[sub] for sub in subs) for name, subs in below.items()}
    masks[ACTOR] = union(masks[name] for name, known in own.items() if known.kind == "actor")
    masks[RESOURCE] = union(masks[name] for name in own)
    types = {name: _with_inherited(name, own, parents, blocks[name], problems) for name in own}
    _check_relation_types(blocks, masks, types, problems)
    everywhere = _own_names(blocks[None], problems) if None in blocks else TypeDef("global", "global")
    return Vocabulary(types, masks, concrete, everywhere.roles, everywhere.permissions, None in blocks)


def near_type(name: str, known: Iterable[str]) -> str:
    """Return a hint for an unknown type name that looks misspelt or abbreviated: "did you mean ...?", or ""."""
    primitive = {"string": STRING, "str": STRING, "int": INTEGER, "number": INTEGER, "bool": "Boolean"}
    if name.lower() in primitive:
        return f"did you mean {shown(primitive[name.lower()])}?"
    known = list(known)
    longer = (each for each in known if len(name) > 2 and each.lower().startswith(name.lower()))
    return did_you_mean(name, known) or next((f"did you mean {shown(each)}?" for each in longer), "")


def union(masks: Iterable[Mask]) -> Mask:
    """Return the union of the sets."""
    found = 0
    for mask in masks:
        found |= mask
    return found


def bits_of(mask: Mask) -> Iterator[Mask]:
    """Yield each type of the set as a singleton."""
    while mask:
        yield mask & -mask
        mask &= mask - 1


def _unique_blocks(policy: ast.Policy, problems: Problems) -> dict[str | None, ast.Block]:
    """Return the blocks by name, None for the global one."""
    blocks: dict[str | None, ast.Block] = {}
    for block in policy.items:
        if not isinstance(block, ast.Block):
            continue
        name = block.name.text if block.name else None
        if block.name and (name in PRIMITIVES or name in ABSTRACT):
            message = f"{shown(block.name.text)} is a built-in type"
            problems.error(block.name.span, message, "choose another name for this block")
        elif len(blocks) > MAX_TYPES:
            problems.error(block.span, f"the policy declares more than {MAX_TYPES:,} types", "store kinds as facts")
            return blocks
        elif name not in blocks:
            blocks[name] = block
        elif block.name is None:
            problems.error(block.span, "the `global` block is declared more than once", "merge them")
        else:
            hint = "an actor is a resource too" if blocks[name].kind != block.kind else "merge the blocks"
            problems.error(block.name.span, f"{shown(block.name.text)} is declared more than once", hint)
    return blocks


# ---- the names of one block ------------------------------------------------------------------------------


def _own_names(block: ast.Block, problems: Problems) -> TypeDef:
    strings: dict[str, tuple[str, ...]] = {}
    relations: dict[str, str] = {}
    seen: dict[str, str] = {}
    for item in block.items:
        if isinstance(item, ast.Shorthand) or not _is_known_item(item, block, problems):
            continue
        if item.keyword.text in strings:
            problems.error(item.keyword.span, f"{shown(item.keyword.text)} occurs twice in a block", "merge the lists")
        if isinstance(item, ast.NameList):
            _check_unique(((name.text, name.span) for name in item.names), item.keyword.text[:-1], seen, problems)
            strings[item.keyword.text] = tuple(dict.fromkeys(name.text for name in item.names))
        else:
            _check_unique(((r.name.text, r.name.span) for r in item.relations), RELATION, seen, problems)
            strings[item.keyword.text] = ()
            relations |= {r.name.text: r.type.text for r in item.relations if r.type}
            _check_typed(item, problems)
    name = block.name.text if block.name else "global"
    return TypeDef(name, block.kind, strings.get("roles", ()), strings.get("permissions", ()), relations)


def _is_known_item(item: ast.NameList | ast.RelationMap, block: ast.Block, problems: Problems) -> bool:
    word = item.keyword.text
    if word not in _LISTS:
        hint = did_you_mean(word, _LISTS) or "a block can have `roles`, `permissions` and `relations`"
        problems.error(item.keyword.span, f"{shown(word)} is not allowed in a block", hint)
    elif block.name is None and word == "relations":
        problems.error(item.keyword.span, "the `global` block cannot have relations", "declare them on a resource")
    elif isinstance(item, ast.RelationMap) != (word == "relations"):
        problems.error(item.keyword.span, f"{shown(word)} must be {_LISTS[word]}")
    else:
        return True
    return False


def _check_unique(names: Iterator[tuple[str, Span]], kind: str, seen: dict[str, str], problems: Problems) -> None:
    for name, span in names:
        if seen.get(name) == kind:
            problems.error(span, f"{kind} {shown(name)} is declared twice", "remove one of them")
        elif name in seen:
            message = f"{shown(name)} cannot be a {kind}: it is already a {seen[name]} of this block"
            problems.error(span, message, "rename one of them")
        seen.setdefault(name, kind)


def _check_typed(item: ast.RelationMap, problems: Problems) -> None:
    for relation in item.relations:
        if relation.type is None:
            name = relation.name.text
            problems.error(relation.span, f"relation {shown(name)} has no type", f"write `{name}: Type`")


def _check_relation_types(
    blocks: Mapping[str | None, ast.Block], masks: Mapping[str, Mask], types: Mapping[str, TypeDef], problems: Problems
) -> None:
    for name, block in blocks.items():
        maps = [item for item in block.items if isinstance(item, ast.RelationMap) and block.name]
        for relation in (each for item in maps for each in item.relations):
            if relation.type is None:
                continue
            target = relation.type.text
            if target in PRIMITIVES:
                hint = f"store such values as facts: `declare {relation.name.text}({name}, {target});`"
                problems.error(relation.type.span, f"a relation cannot have the type {shown(target)}", hint)
            elif target not in masks:
                hint = did_you_mean(target, (*types, *ABSTRACT)) or f"declare it: `resource {target} {{}}`"
                problems.error(relation.type.span, f"unknown type {shown(target)}", hint)


# ---- extends --------------------------------------------------------------------------------------------------


def _parents(blocks: Mapping[str | None, ast.Block], problems: Problems) -> dict[str, tuple[str, ...]]:
    """Return the declared types that each type extends directly; a type on a cycle extends none."""
    found: dict[str, tuple[str, ...]] = {}
    for name, block in blocks.items():
        if name is not None:
            found[name] = tuple(
                dict.fromkeys(above.text for above in block.extends if _extends(name, above, blocks, problems))
            )
    components = Components[str](found.__getitem__)
    for name in [name for name in found if components.number(name) is not None]:
        span = blocks[name].extends[0].span
        problems.error(span, f"{shown(name)} extends itself", "remove one `extends` of the cycle")
        found[name] = ()
    return found


def _extends(below: str, above: ast.Name, blocks: Mapping[str | None, ast.Block], problems: Problems) -> bool:
    block, name = blocks[below], above.text
    known = blocks.get(name)
    kind = known.kind if known else {ACTOR: "actor", RESOURCE: "resource"}.get(name)
    if name in PRIMITIVES:
        problems.error(above.span, f"{shown(name)} cannot be extended", "extend an actor or a resource")
    elif kind is None:
        names = [other for other in blocks if other]
        hint = did_you_mean(name, names) or f"declare it: `{block.kind} {name} {{}}`"
        problems.error(above.span, f"unknown type {shown(name)}", hint)
    elif block.kind == "resource" and kind == "actor":
        hint = f"declare {shown(below)} as an actor: an actor is a resource too"
        problems.error(above.span, f"a resource cannot extend the actor {shown(name)}", hint)
    else:
        return known is not None
    return False


def _ancestors(name: str, parents: Mapping[str, tuple[str, ...]]) -> list[str]:
    """Return all supertypes, nearest first."""
    return reachable(parents[name], parents.__getitem__)


def _subtypes(own: Mapping[str, TypeDef], parents: Mapping[str, tuple[str, ...]]) -> dict[str, set[str]]:
    below: dict[str, set[str]] = {name: {name} for name in own}
    for name in own:
        for above in _ancestors(name, parents):
            below[above].add(name)
    return below


def _with_inherited(
    name: str, own: Mapping[str, TypeDef], parents: Mapping[str, tuple[str, ...]], block: ast.Block, problems: Problems
) -> TypeDef:
    line = [own[name], *(own[above] for above in _ancestors(name, parents))]
    if len(line) == 1:
        return own[name]
    roles = tuple(dict.fromkeys(role for known in line for role in known.roles))
    permissions = tuple(dict.fromkeys(permission for known in line for permission in known.permissions))
    relations = {relation: target for known in reversed(line) for relation, target in known.relations.items()}
    found = TypeDef(name, own[name].kind, roles, permissions, relations)
    for word in (*roles, *permissions):
        kinds = sorted(_meanings(found, word))
        if len(kinds) > 1:
            assert block.name  # only the global block has none, and it inherits nothing
            message = f"{shown(word)} is both a {kinds[0]} and a {kinds[1]} of {shown(name)}"
            problems.error(block.name.span, message, "rename one; a type also has the names of its supertypes")
    return found
