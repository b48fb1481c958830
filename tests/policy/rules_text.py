"""A program as text for golden files: its rules with the types of their variables, its signatures, its warnings."""

from policy.language.source import PolicyRejected
from policy.rules import compile_text
from policy.rules.program import Program, Rule, Types


def rules_of(text: str) -> list[str]:
    """The rules that the text means, without the default `allow`."""
    return [str(rule) for rule in compile_text(text).rules if rule.origin.end]


def types_of(text: str, predicate: str, index: int = 0) -> dict[str, str]:
    """The types of the variables of the predicate's rule."""
    program = compile_text(text)
    rule = [rule for rule in program.rules if rule.head.predicate == predicate][index]
    return {str(variable): types_text(types, program) for variable, types in rule.types.items()}


def accepted(text: str) -> list[str]:
    """The facts that the policy accepts, apart from those that every policy does."""
    lines = rules_text(compile_text(text)).splitlines()
    found = [line.removeprefix("accepts ") for line in lines if line.startswith("accepts ")]
    return [line for line in found if not line.startswith(("allow(", "has_permission("))]


def problems_of(text: str) -> list[str]:
    """The messages that refuse the text, none if it is a policy."""
    try:
        compile_text(text)
    except PolicyRejected as rejected:
        return [problem.message for problem in rejected.problems]
    return []


def warnings_of(text: str) -> list[str]:
    return [problem.message for problem in compile_text(text).warnings]


def rules_text(program: Program) -> str:
    rules = [rule_text(rule, program) for rule in program.rules]
    accepted = [
        f"accepts {predicate}({', '.join(types_text(types, program) for types in pattern)})"
        for (predicate, _), patterns in program.accepted.items()
        for pattern in patterns
    ]
    warnings = [f"warning: {problem.describe(program.source)}" for problem in program.warnings]
    return "\n".join([*rules, "", *accepted, *([""] if warnings else []), *warnings]) + "\n"


def rule_text(rule: Rule, program: Program) -> str:
    types = ", ".join(f"{variable}: {types_text(types, program)}" for variable, types in rule.types.items())
    return f"{rule}{f'  # {types}' if types else ''}"


def types_text(types: Types, program: Program) -> str:
    """By one name where one fits."""
    everything = frozenset().union(*program.subtypes.values())
    if types == everything:
        return "_"
    names = {found: name for name, found in reversed(program.subtypes.items())}
    return names.get(types) or " | ".join(exact(name, program) for name in sorted(types)) or "nothing"


def exact(name: str, program: Program) -> str:
    """A type by itself, marked where the name alone would mean its subtypes too."""
    return name if len(program.subtypes[name]) == 1 else f"{name}!"
