"""Convert CEL expressions and conditions to Polar."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from authz_project.importers import cel, ir, terms
from authz_project.importers.layout import unused, variable
from policy.language import ast
from policy.values import STRING

# ---- parts of conditions without an equivalent in Polar -----------------------------------------------------------


def report_unsupported(model: ir.Model, report: ir.ImportReport) -> None:
    def tell(kind: ir.ModelKind, place: ir.Place, message: str) -> None:
        report.add(kind, place, f"condition {condition.name}: {message}")

    for condition in model.conditions:
        users = ", ".join(_users(model, condition))
        about = f"; affects {users}" if users else ""
        for part in (each for each in ir.atoms(condition.test) if isinstance(each, ir.Unsupported)):
            tell(ir.ModelKind.LOST, part.place, f"`{part.text}`: {part.reason}{about}")
        for total in cel.sums(condition.test):
            message = f"`{cel.described(total)}` is computed at import, or must be given by the request as a whole"
            tell(ir.ModelKind.CHANGED, total.place, message)
        for parameter in condition.parameters:
            if condition.needs_every_value and cel.polar_type(parameter.type) is None:
                message = f"values of type {parameter.type} are not supported{about}"
                tell(ir.ModelKind.LOST, parameter.place, message)
            if "double" in parameter.type and cel.polar_type(parameter.type):
                tell(ir.ModelKind.CHANGED, parameter.place, f"{parameter.name} accepts only integers")


def _users(model: ir.Model, condition: ir.ModelCondition) -> Iterator[str]:
    for type_, relation in ir.relations_of(model):
        if any(each.condition == condition.name for each in relation.subjects):
            yield f"{type_.name}#{relation.name}"


# ---- conditions of tuples as rules --------------------------------------------------------------------------------
#     resource in_hours {}
#
#     in_hours(when: in_hours) if
#       value_of(when, "hour", hour) and value_of(when, "from", from) and hour >= from;
#
# `when` represents the values that a tuple binds: it is stored with the tuple, and the values as facts
# `parameter(when, …)`. Values that the tuple leaves open come from the request: `context("hour", 11)`. If a value is
# missing, comparisons with it are neither true nor false: `fails` holds only if the condition is definitely false.

OPPOSITE = {"==": "!=", "!=": "==", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}


def condition_rules(condition: ir.ModelCondition, name: str, fails: bool, clock: frozenset[str]) -> Iterator[ast.Rule]:
    """Yield the rules for when the condition is met; with `fails`, also those for when it is definitely not met."""
    writer = _ConditionWriter(condition, clock)
    params = [terms.parameter("when", name)]
    yield from (terms.rule(name, params, part) for part in terms.parts_of(writer.whole(True), ast.Or))
    if fails:
        yield from (terms.rule("fails", params, part) for part in terms.parts_of(writer.whole(False), ast.Or))


@dataclass(frozen=True)
class _ConditionWriter:
    condition: ir.ModelCondition
    clock: frozenset[str]

    def whole(self, holds: bool) -> ast.Formula:
        formula = self.says(self.condition.test, holds)
        if not self.condition.needs_every_value:
            return _lean(formula)
        if None in map(cel.polar_type, self._types.values()):
            return terms.FALSE  # such a value cannot be given
        needed = [*ir.operands(self.condition.test), *map(ir.GivenValue, cel.unasked(self.condition))]
        bound = [part for each in needed for part in self._binding(each)]
        return _lean(terms.every(*bound, formula, *map(self._elements_fit, self._types)))

    @cached_property
    def _types(self) -> dict[str, str]:
        return {each.name: each.type for each in self.condition.parameters}

    def _elements_fit(self, name: str) -> ast.Formula:
        """Return the condition that a list, as given by a request, has only values of its type, or is empty.

        The types of other parameters are checked wherever their values are used.
        """
        kind = cel.element_type(self._types.get(name, ""))
        if kind is None:
            return terms.TRUE
        held = self._variable(f"one of {name}, {len(self._variables)}", f"one_of_{name}")  # another one each time
        is_empty = ast.Comparison("=", held, ast.Literal(cel.empty_list(kind)))
        others = (terms.no(fit) for fit in (terms.matches(held.name, kind), is_empty))
        return terms.either(*[terms.no(terms.every(_value(name, held), other)) for other in others])

    @cached_property
    def _variables(self) -> dict[str, str]:
        """Return the variables for the values by their names, those of the parameters first; no two are the same."""
        found: dict[str, str] = {}
        for name in self._types:
            found[name] = unused(variable(name), {*found.values()})
        return found

    def _variable(self, name: str, wanted: str) -> ast.Variable:
        """Return the variable for the value with this name: the wanted one, or a similar one if that is taken."""
        if name not in self._variables:
            self._variables[name] = unused(variable(wanted), {*self._variables.values()})
        return ast.Variable(self._variables[name])

    def says(self, test: ir.ModelTest, holds: bool) -> ast.Formula:
        """Return the condition that the test is definitely true; with `holds=False`, that it is definitely false."""
        match test:
            case ir.Always(value):
                return ast.Truth(value == holds)
            case ir.Unsupported():
                return terms.FALSE
            case ir.Negation(inner):
                return self.says(inner, not holds)
            case ir.AllOf(parts) | ir.AnyOf(parts):
                formulas = [self.says(part, holds) for part in parts]
                return terms.every(*formulas) if isinstance(test, ir.AllOf) == holds else terms.either(*formulas)
            case ir.ModelChoice(chosen, one, other):
                sides = (one, True), (other, False)
                either = [terms.every(self.says(chosen, met), self.says(side, holds)) for side, met in sides]
                return terms.either(*either)
            case ir.IsTrue(name) if self.condition.needs_every_value:
                return ast.Comparison("=", self._term(ir.GivenValue(name)), terms.constant(holds))
            case ir.IsTrue(name):
                return _value(name, terms.constant(holds))
            case ir.ModelComparison(operator, left, right):
                return self._compared(operator if holds else OPPOSITE[operator], left, right)
            case ir.OneOf(item, values):
                return self._one_of(item, values, holds)

    def _compared(self, operator: str, left: ir.ModelOperand, right: ir.ModelOperand) -> ast.Formula:
        compared = ast.Comparison("=" if operator == "==" else operator, self._term(left), self._term(right))
        return terms.every(*self._bound(left, right), compared)

    def _one_of(
        self, item: ir.ModelOperand, values: tuple[ir.Constant, ...] | ir.GivenValue, holds: bool
    ) -> ast.Formula:
        term = self._term(item)
        if isinstance(values, ir.GivenValue):
            among = _value(values.parameter, term)
            needed = (item,) if holds else (item, values)
            fit = terms.TRUE if self.condition.needs_every_value else self._elements_fit(values.parameter)
            return terms.every(*self._bound(*needed), among if holds else terms.no(among), fit)
        constants = tuple(terms.constant(each.value) for each in values)
        listed = ast.Membership(term, constants) if constants else terms.FALSE
        return terms.every(*self._bound(item), listed if holds else terms.no(listed))

    def _term(self, operand: ir.ModelOperand) -> ast.Term:
        if isinstance(operand, ir.Constant):
            return terms.constant(operand.value)
        name = cel.described(operand)
        if name in self.clock:
            return ast.CurrentTime()
        return self._variable(name, name.replace(" + ", "_plus_").replace(" - ", "_minus_"))

    def _bound(self, *operands: ir.ModelOperand) -> list[ast.Formula]:
        """Return what binds the values of operands, unless `whole` binds all."""
        if self.condition.needs_every_value:
            return []
        return [part for each in operands for part in self._binding(each)]

    def _binding(self, operand: ir.ModelOperand) -> list[ast.Formula]:
        """Return the conditions that a value is present and of its type, which bind its variable, if it has one."""
        term, name = self._term(operand), cel.described(operand)
        if not isinstance(term, ast.Variable):
            return []
        type_name = self._types.get(name, "int")
        if type_name.startswith("list<"):
            return [_value(name, terms.ANY)]
        return [_value(name, term), terms.matches(term.name, cel.polar_type(type_name) or STRING)]


def _value(name: str, term: ast.Term) -> ast.Call:
    return terms.call("value_of", terms.WHEN, terms.text(name), term)


def _lean(formula: ast.Formula) -> ast.Formula:
    """Drop type checks that another part implies: `x matches Integer and x < 9` -> `x < 9`."""
    if isinstance(formula, ast.Or):
        return terms.either(*map(_lean, formula.parts))
    if not isinstance(formula, ast.And):
        return formula
    sure = {each for part in formula.parts for each in _of_sure_type(part)}
    kept = [part for part in formula.parts if not (isinstance(part, ast.Matches) and part.variable in sure)]
    return terms.every(*map(_lean, kept))


def _of_sure_type(part: ast.Formula) -> Iterator[ast.Term]:
    """Yield the terms whose type the part implies."""
    match part:
        case ast.Comparison(operator, left, right) if operator in ("<", "<=", ">", ">="):
            yield from (left, right)
        case ast.Comparison("=", left, right) if isinstance(left, ast.Literal) or isinstance(right, ast.Literal):
            yield from (left, right)
        case ast.Membership(term):
            yield term
