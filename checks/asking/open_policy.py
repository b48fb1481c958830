"""The open policy of environments without one: `allow` follows from `has_permission` facts of any types."""

from functools import lru_cache

from policy.active import program_of_version
from policy.language.source import Source
from policy.rules.program import Atom, Program, Rule, Types, Var

AskedPolicy = int | Types  # a version; or, without one, the types that questions mention


class OpenProgram(Program):
    """Accepts every fact and knows every predicate."""

    def accepts(self, predicate: str, types: tuple[str, ...]) -> bool:
        return True


def policy_of(version: int | None, types: Types) -> AskedPolicy:
    """Return the version, or, without one, the open policy for questions that mention these types."""
    return types if version is None else version


def program_of(policy: AskedPolicy) -> Program:
    """Return the program that answers questions. There is always one."""
    return open_program(policy) if isinstance(policy, frozenset) else program_of_version(policy)


@lru_cache(maxsize=256)
def open_program(types: Types) -> OpenProgram:
    """Return the program for questions that mention these types."""
    return OpenProgram(
        source=Source(""),
        types={},
        subtypes={name: frozenset((name,)) for name in types},
        global_roles=(),
        global_permissions=(),
        has_global=False,
        rules=(_default(types, 3), _default(types, 2)),
        helpers=frozenset(),
        accepted={("has_permission", arity): ((types,) * arity,) for arity in (2, 3)},
        tests=(),
        warnings=(),
        digest="",
    )


def _default(types: Types, arity: int) -> Rule:
    variables = tuple(Var(name) for name in ("actor", "action", "resource")[:arity])
    return Rule(Atom("allow", variables), (Atom("has_permission", variables),), dict.fromkeys(variables, types))
