"""Net -> SQL text.

    exits only                 arm UNION ALL arm …
    with goals                 WITH RECURSIVE g(tag, c0 …) AS (seeds UNION moves) arms, some of which read g
    with answers               … , a(tag, c0 …, o0 …) AS (…) arms, some of which read a

Join order is the plan's, pinned with CROSS JOIN. Aliases are numbered by position, so that equal branches have
equal text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from checks.engine.plan.plan import (
    Among,
    AnswerArm,
    Answers,
    Branch,
    Candidates,
    Condition,
    Exit,
    Fact,
    Goals,
    Holds,
    Ids,
    Jump,
    Net,
    Order,
    Relation,
    Same,
    Source,
    Tagged,
    Variant,
    stored_first,
)
from checks.engine.plan.variants import variant_of
from checks.engine.rules.clauses import Col, Const, Operand, Other, Slot, Term, Var
from checks.engine.rules.limits import tick
from checks.engine.sql.dialects import Dialect
from checks.engine.sql.rounds import Rounds, rounds_for
from checks.engine.sql.scope import Scope
from checks.engine.sql.steps import Names, idle_in, names_of, steps_of
from checks.engine.sql.text import Choice, Column, Formed, Text, joined, merged, union
from policy.rules.program import Signature

INLINE = "inline_fact"
FACTS = Slot("facts")


@dataclass
class Renderer:
    dialect: Dialect
    number_of: Callable[[Signature], int]
    places: Callable[[Signature], tuple[str, ...]]
    inline: frozenset[Signature] = frozenset()
    stored_table: str = "fact"
    rounds: dict[Net, Rounds] = field(default_factory=dict)  # nets that are worked out before the statement runs
    shared: dict[tuple[Net, Variant], tuple[str, Text]] = field(default_factory=dict)  # nets that branches join with

    # ---- nets ---------------------------------------------------------------------------------------------------

    def query(self, net: Net, scope: Scope, exits: tuple[Exit, ...] | None = None, distinct: bool = False) -> Text:
        """The answers of the net (or of some of its exits): columns o0 …, or 1 where it has none."""
        scope = scope.inside()
        tables = self.tables(net, scope)
        recursion: Text = ("WITH RECURSIVE ", *joined(", ", tables), " ") if tables else ()
        arms = [self.row(end, [], scope) for end in stored_first(net.exits if exits is None else exits)]
        return (*recursion, *union(arms, distinct))

    def row(self, end: Exit, first: list[Text], scope: Scope) -> Text:
        """An exit as an arm: the columns that are wanted first, then its answer columns."""
        columns: list[Column] = [*first, *(self._out(out, f"o{index}") for index, out in enumerate(end.outs))]
        return self._select(end.branch, columns or [("1",)], scope)

    def verdict(self, end: Exit, tests: tuple[Condition, ...], scope: Scope) -> Text:
        """A column: whether the tests hold, for a row of the exit."""
        if not tests:
            return ("1",)
        named = scope.naming(end.branch.sources)
        outcome = joined(" AND ", (self.condition(test, named) for test in tests))
        return ("CASE WHEN ", *outcome, " THEN 1 ELSE 0 END")

    def tables(self, net: Net, scope: Scope) -> list[Text]:
        """What the net's branches read besides facts: its goals and answers, where it has any."""
        goals = [self.goals(net, scope)] if net.seeds else []
        return [*goals, self._answers(net, scope)] if net.answers else goals

    def goals(self, net: Net, scope: Scope) -> Text:
        columns = ["tag", *(f"c{index}" for index in range(net.key_count))]
        seeds = [self._goal_row(net, jump, scope, True) for jump in net.seeds]
        arms = [self._goal_row(net, jump, scope, False) for jump in net.moves]
        return self.dialect.recursive(scope.goals, scope.row, columns, merged(seeds), merged(arms))

    def _goal_row(self, net: Net, jump: Jump, scope: Scope, is_seed: bool) -> Text:
        keys: list[Term] = [*jump.keys, *[Const("")] * (net.key_count - len(jump.keys))]
        tag = (str(net.states.index(jump.state)),)
        lateral = scope.with_lateral(Goals) if not is_seed and self.dialect.recursive_arms_join else scope
        columns: list[Column] = [tag, *(Formed(self.dialect.seed, key) for key in keys)]
        return self._select(jump.branch, columns, lateral)

    def _answers(self, net: Net, scope: Scope) -> Text:
        columns = ["tag", *(f"c{i}" for i in range(self._keys(net))), *(f"o{i}" for i in range(net.answer_width))]
        seeds = [self._answer_row(net, arm, scope) for arm in net.answers if not arm.is_recursive]
        arms = [self._answer_row(net, arm, scope) for arm in net.answers if arm.is_recursive]
        return self.dialect.recursive(scope.answers, scope.row, columns, merged(seeds), merged(arms))

    def _keys(self, net: Net) -> int:
        return net.key_count if net.seeds else 0

    def _answer_row(self, net: Net, arm: AnswerArm, scope: Scope) -> Text:
        padding = [Const("")] * (self._keys(net) - len(arm.keys))
        outs: list[Operand] = [Const("") if isinstance(out, Var) else out for out in arm.exit.outs]
        outs += [Const("")] * (net.answer_width - len(outs))
        terms: list[Operand] = [*arm.keys, *padding, *outs]
        columns: list[Column] = [(str(arm.tag),), *(Formed(self.dialect.seed, term) for term in terms)]
        branch = _answers_first(arm.exit.branch) if arm.is_recursive else arm.exit.branch
        lateral = scope.with_lateral(Answers) if arm.is_recursive and self.dialect.recursive_arms_join else scope
        return self._select(branch, columns, lateral)

    def _out(self, term: Term, name: str) -> Column:
        if isinstance(term, Var):
            return (f"NULL AS {name}",)
        return Formed(lambda text: (*self.dialect.text_value(text), f" AS {name}"), term)

    def _path(self, net: Net, name: str, scope: Scope) -> Text:
        """All that a path leads to, as one recursion: its goals are its answers."""
        scope = replace(scope, tables={source.number: name for jump in net.moves for source in jump.branch.sources[:1]})
        lateral = scope.with_lateral(Goals) if self.dialect.recursive_arms_join else scope
        starts = [(end.branch, end.outs[0]) for end in net.exits if not end.branch.sources]
        starts += [(jump.branch, jump.keys[0]) for jump in net.seeds]
        seeds = [self._select(branch, [Formed(self.dialect.seed, term)], scope) for branch, term in starts]
        moves = [(_untagged(jump.branch), jump.keys[0]) for jump in net.moves]
        arms = [self._select(branch, [Formed(self.dialect.seed, term)], lateral) for branch, term in moves]
        return self.dialect.recursive(name, scope.row, ["c0"], merged(seeds), merged(arms))

    def rounds_of(self, net: Net) -> Rounds:
        if net not in self.rounds:
            made = rounds_for(net, len(self.rounds), lambda: replace(self, shared={}))
            self.rounds[net] = made  # after those that it reads itself
        return self.rounds[net]

    def head(self, tables: list[Text]) -> Text:
        """WITH all that the statement's selects read by name."""
        inline: list[Text] = []
        if self.inline:
            rows = self.dialect.rows((FACTS,), max(len(each.types) for each in self.inline))
            inline = [(f"{INLINE} AS MATERIALIZED (", *rows, ")")]
        every = [*inline, *(text for _, text in self.shared.values()), *tables]
        return ("WITH RECURSIVE ", *joined(", ", every), " ") if every else ()

    def select(self, branch: Branch, columns: Sequence[Column], scope: Scope) -> Text:
        """A SELECT of columns from a branch."""
        return self._select(branch, columns, scope)

    # ---- branches -------------------------------------------------------------------------------------------------

    def _select(self, branch: Branch, columns: Sequence[Column], scope: Scope) -> Text:
        tick()
        scope = scope.naming(branch.sources)
        shown = [self._column(column, scope) for column in columns]
        if self.dialect.joins_apart:
            terms = (column.term for column in columns if isinstance(column, Formed))
            wanted = {term for term in terms if isinstance(term, Col)}
            tables, tests = self._read_apart(branch, idle_in(branch, wanted), scope)
        else:
            tables, tests = self._read(branch, scope)
        text: Text = ("SELECT ", *joined(", ", shown))
        if tables:
            text = (*text, " FROM ", *joined(" CROSS JOIN ", tables))
        return (*text, " WHERE ", *joined(" AND ", tests)) if tests else text

    def _read(self, branch: Branch, scope: Scope) -> tuple[list[Text], list[Text]]:
        """The tables to join and the tests of their rows."""
        tables = [self._named(source, scope) for source in scope.read(branch.sources)]
        tests = [self._number_test(source, scope) for source in branch.sources if isinstance(source, Fact)]
        return tables, tests + [self.condition(each, scope) for each in branch.conditions]

    def _read_apart(self, branch: Branch, idle: list[Source], scope: Scope) -> tuple[list[Text], list[Text]]:
        """The same, each stored fact that is joined looked up in a SELECT of its own, by all that is known before it.

        What the request brings has no index to be looked up by: of many, the database makes a table of its own choice.
        Facts that only have to be there are tested first: what takes longer is then often not run at all.
        """
        tables: list[Text] = []
        tests: list[Text] = []
        for source, conditions in steps_of(branch, scope.read(branch.sources)):
            names = {} if source in idle else names_of(source, conditions)
            alias = scope.names.get(source.number, "") if source else ""
            own = [self._test(each, scope, names, alias) for each in conditions]
            if isinstance(source, Fact):
                own.insert(0, self._number_test(source, scope))
            tables += [self._names(each, alias) for each in names.values()]
            looked_up: Text = (
                (" FROM ", *self._named(source, scope), " WHERE ", *joined(" AND ", own)) if source else ()
            )
            if source in idle:
                tests.insert(0, ("EXISTS (SELECT 1", *looked_up, ")"))
            elif isinstance(source, Fact) and source.place == "stored" and (tables or scope.lateral):
                tables.append(("LATERAL (SELECT *", *looked_up, f" OFFSET 0) {alias}"))
            else:
                tests += own
                tables += [self._named(source, scope)] if source else []
        return tables, tests

    def _named(self, source: Source, scope: Scope) -> Text:
        return (*self._table(source, scope), f" {scope.names[source.number]}")

    def _names(self, names: Names, alias: str) -> Text:
        """The names that a column may have, as a table."""
        column, ids = names
        return (Choice(f"{alias}{column.name}", ids, is_table=True),)

    def _test(self, condition: Condition, scope: Scope, names: dict[Condition, Names], alias: str) -> Text:
        if condition not in names:
            return self.condition(condition, scope)
        column, _ = names[condition]
        return (*self.operand(column, scope), f" = {alias}{column.name}.v")

    def _column(self, column: Column, scope: Scope) -> Text:
        return column.form(self.operand(column.term, scope)) if isinstance(column, Formed) else column

    def _table(self, source: Source, scope: Scope) -> Text:
        match source:
            case Fact(place=place):
                return (self._facts(place),)
            case Ids(slot=slot):
                return self.dialect.values((Slot(slot),))
            case Goals(number):
                return (scope.tables.get(number, scope.goals),)
            case Answers(number):
                return (scope.tables.get(number, scope.answers),)
            case Relation():
                return self._relation(source, scope)
            case Candidates():
                return ("(", *self._candidates(source), ")")
        raise AssertionError(f"{source} is read by another renderer")

    def _facts(self, place: str) -> str:
        assert place in ("stored", "inline"), f"facts in {place} are read by another statement"
        return self.stored_table if place == "stored" else INLINE

    def _number_test(self, source: Fact, scope: Scope) -> Text:
        return (f"{scope.names[source.number]}.sig = {self.number_of(source.signature)}",)

    def _candidates(self, source: Candidates) -> Text:
        arms: list[Text] = [("SELECT ", *self.dialect.seed((Const(each),)), " AS v") for each in ("", *source.ids)]
        for place in source.places:
            for where in self.places(place.signature):
                number = self.number_of(place.signature)
                arms.append((f"SELECT a{place.index} FROM {self._facts(where)} WHERE sig = {number}",))
        return joined(" UNION ", arms)

    def _relation(self, source: Relation, scope: Scope) -> Text:
        net = source.net
        exits = tuple(end for end in net.exits if variant_of(end, net.fixed) == source.variant)
        columns = [net.column(index) for index in range(max(net.width, 1))]
        if not net.is_rounds and any(isinstance(operand, Col) for operand in net.fixed):
            if net.is_plain_path:
                inner = scope.inside()
                name = f"w{inner.depth}"
                return ("(WITH RECURSIVE ", *self._path(net, name, inner), f" SELECT c0 FROM {name})")
            return ("(SELECT * FROM (", *self.query(net, scope, exits), ") x)")
        key = (net, source.variant)
        if net.is_rounds and key not in self.shared:
            name = f"r{len(self.shared)}"
            slot = self.rounds_of(net).slot(source.variant)
            self.shared[key] = (name, (f"{name} AS MATERIALIZED (", *self.dialect.table((Slot(slot),), columns), ")"))
        if key not in self.shared:
            name = f"r{len(self.shared)}"
            self.shared[key] = (name, ())
            if net.is_plain_path:
                self.shared[key] = (name, self._path(net, name, Scope()))
            else:
                text = self.query(net, Scope(prefix=name), exits, distinct=True)
                self.shared[key] = (name, (f"{name}({', '.join(columns)}) AS MATERIALIZED (", *text, ")"))
        return (self.shared[key][0],)

    # ---- conditions -----------------------------------------------------------------------------------------------

    def condition(self, condition: Condition, scope: Scope) -> Text:
        match condition:
            case Same(left, right):
                return self._same(left, right, scope)
            case Among(operand, ids):
                return self._among(operand, ids, scope)
            case Order("!=", left, right):
                return (*self.operand(left, scope), " <> ", *self.operand(right, scope))
            case Order(operator, left, right):
                return joined(f" {operator} ", (self._integer(side, scope) for side in (left, right)))
            case Tagged(source, tags):
                return (f"{scope.names[source]}.tag = {tags[0]}",)
            case Holds(Net(is_set=True) as net, negated):
                looked_up = joined(" OR ", (self._looked_up(end, scope) for end in net.exits))
                return ("(", *looked_up, ") IS NOT TRUE" if negated else ") IS TRUE")
            case Holds(net, negated):
                return ("NOT EXISTS (" if negated else "EXISTS (", *self.query(net, scope), ")")
        raise AssertionError(f"{condition} is tested by another renderer")

    def _integer(self, operand: Operand, scope: Scope) -> Text:
        """The operand as a number: of a fact, its signature tells that it is one; a value is looked at once."""
        text = self.operand(operand, scope)
        if not isinstance(operand, Col):
            return ("(SELECT ", *self.dialect.integer(text), ")")
        source = scope.facts.get(operand.source)
        return self.dialect.integer(text, () if source is None else self._number_test(source, scope))

    def _looked_up(self, end: Exit, scope: Scope) -> Text:
        """Whether columns are in a set: `IN`, which both databases answer from a table of the set that is built once.

        Under `IS TRUE` it stays that way: PostgreSQL would make a join of it, of sizes that it cannot know.
        """
        source, *others = end.branch.sources
        sides = [_sides(each, source.number) for each in end.branch.conditions]
        pairs = [pair for pair in sides if pair]
        if others or not isinstance(source, Relation) or len(pairs) < len(sides) or not pairs:
            return ("EXISTS (", *self._select(end.branch, [("1",)], scope.inside()), ")")
        left = joined(", ", (self.operand(operand, scope) for _, operand in pairs))
        columns = ", ".join(column.name for column, _ in pairs)
        wanted: Text = left if len(pairs) == 1 else ("(", *left, ")")
        return (*wanted, f" IN (SELECT {columns} FROM ", *self._relation(source, scope), ")")

    def _same(self, left: Operand, right: Operand, scope: Scope) -> Text:
        if isinstance(right, Const) and isinstance(left, Col):
            return (Choice(self._at(left, scope), frozenset((right.id,))),)
        return (*self._known(left, scope), " = ", *self._known(right, scope))

    def _known(self, operand: Operand, scope: Scope) -> Text:
        """An operand beside another one: a parameter beside a parameter has no type of its own."""
        text = self.operand(operand, scope)
        return text if isinstance(operand, Col) else self.dialect.text_value(text)

    def _among(self, operand: Operand, ids: tuple[str, ...], scope: Scope) -> Text:
        if isinstance(operand, Col):
            return (Choice(self._at(operand, scope), frozenset(ids)),)
        options = joined(", ", ((Const(each),) for each in ids))
        return (*self.dialect.text_value(self.operand(operand, scope)), " IN (", *options, ")")

    def operand(self, operand: Term, scope: Scope) -> Text:
        match operand:
            case Col():
                return (self._at(operand, scope),)
            case Const() | Slot() | Other():
                return (operand,)
        raise AssertionError(f"{operand} has no value when the statement runs")

    def _at(self, column: Col, scope: Scope) -> str:
        return f"{scope.names[column.source]}.{column.name}"


def _sides(condition: Condition, number: int) -> tuple[Col, Operand] | None:
    """The column of a source and what it equals."""
    match condition:
        case Same(Col(source) as column, operand) if source == number:
            return column, operand
    return None


def _untagged(branch: Branch) -> Branch:
    return Branch(branch.sources, tuple(each for each in branch.conditions if not isinstance(each, Tagged)))


def _answers_first(branch: Branch) -> Branch:
    """The new answer drives the recursive step; its goal is only looked up."""
    rank = {Answers: 0, Goals: 2}
    return Branch(tuple(sorted(branch.sources, key=lambda source: rank.get(type(source), 1))), branch.conditions)
