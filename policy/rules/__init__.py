"""The compiler: from syntax tree to `Program`, one pass a file, in this order.

`declarations` reads the blocks, and `implied` finds types that rules use without a block; `desugar` rewrites shorthand
as ordinary rules; `normalise` flattens rules (with `conjunction`, `literals` and `equalities`; `formulas` has helpers
for its input, `flat` its output); `infer` finds the types of variables; `safety` refuses variables that nothing binds;
`strata` refuses recursion through `not`; `signatures` says which facts may be stored; `assertions` reads the tests.
`program` is the result.

Every pass adds the errors it finds to one list and goes on, so that the author of a policy sees all of them at once.
"""

from hashlib import sha256

from policy import noticing
from policy.language import ast, parse
from policy.language.collector import without_collections
from policy.language.source import Source
from policy.rules.assertions import tests_of
from policy.rules.declarations import vocabulary_of
from policy.rules.desugar import longhand_rules
from policy.rules.flat import is_made_here
from policy.rules.infer import infer, typed_rules
from policy.rules.normalise import flat_rules
from policy.rules.problems import Problems
from policy.rules.program import Program
from policy.rules.safety import check_safety
from policy.rules.signatures import accepted_patterns, default_allows, standing_patterns, stated_patterns
from policy.rules.strata import check_strata

__all__ = ["compile_policy", "compile_source", "compile_text"]


def compile_policy(policy: ast.Policy, source: Source) -> Program:
    problems = Problems(source)
    known = vocabulary_of(policy, problems)
    stated, standing = stated_patterns(policy, known, problems), standing_patterns(known)
    longhand = longhand_rules(policy, known, problems) + default_allows(policy)
    flat = flat_rules(longhand, known, problems)
    inferred = infer(flat, stated, standing, known, problems)
    check_safety(policy, flat, known, problems)
    check_strata(flat, inferred.typings, known, problems)
    accepted = accepted_patterns(flat, inferred, stated, standing, known)
    tests = tests_of(policy, source, accepted, known, problems)
    problems.reject_errors()
    return Program(
        source=source,
        types=known.types,
        subtypes={name: known.types_of(mask) for name, mask in known.masks.items()},
        global_roles=known.global_roles,
        global_permissions=known.global_permissions,
        has_global=known.has_global,
        rules=typed_rules(flat, inferred.typings, known),
        helpers=frozenset(rule.head.predicate for rule in flat if is_made_here(rule.head.predicate)),
        accepted=accepted,
        tests=tests,
        warnings=problems.sorted_warnings(),
        digest=sha256(source.text.encode()).hexdigest(),
    )


def compile_source(source: Source) -> Program:
    with noticing.noted("policy"), without_collections():
        return compile_policy(parse(source), source)


def compile_text(text: str, filename: str = "") -> Program:
    return compile_source(Source(text, filename))
