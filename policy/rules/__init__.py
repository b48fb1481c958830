"""The compiler: from the syntax tree to a `Program`, one pass after another.

* `declarations`  reads the blocks, and finds types that rules use without a block
* `desugar`       rewrites shorthand as ordinary rules, and reads the tests
* `flatten`       normalizes each rule to a head and a conjunction of literals
* `types`         infers the types of variables, and determines which facts may be stored
* `safety`        rejects unbound variables, and recursion through `not`
* `program`       the result; `changes` compares two of them

Each pass adds its errors to a common list and continues, so that authors see all of them at once.
"""

from hashlib import sha256

from policy.core import spans
from policy.language import ast, parse
from policy.language.source import Source, without_collections
from policy.rules.declarations import Problems, vocabulary_of
from policy.rules.desugar import longhand_rules, tests_of
from policy.rules.flatten import flat_rules, is_made_here
from policy.rules.program import Program
from policy.rules.safety import check_safety, check_strata
from policy.rules.types import accepted_patterns, default_allows, infer, standing_patterns, stated_patterns, typed_rules

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
        defined=frozenset(rule.head.predicate.text for rule in longhand),
    )


def compile_source(source: Source) -> Program:
    with spans.noted("policy"), without_collections():
        return compile_policy(parse(source), source)


def compile_text(text: str, filename: str = "") -> Program:
    return compile_source(Source(text, filename))
