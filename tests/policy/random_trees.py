"""Random syntax trees: anything that the grammar can build, and no policy that means anything."""

from hypothesis import strategies as st

from policy.language import ast
from policy.language.parser import COMPARISONS, CONTEXTUAL, LEGACY, RESERVED
from policy.values import Value

words = st.sampled_from(["x", "actor", "User", "_x", "a::b", "ok?", "Größe", "日本", "new", "role", *CONTEXTUAL])
names = st.builds(ast.Name, words)
variables = st.builds(ast.Variable, words | st.just("_"))
_unfit = "\0\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
_chars = st.characters(exclude_categories=["Cs"], exclude_characters=_unfit)
texts = st.text(_chars, min_size=1, max_size=12).filter(lambda text: text != "*")
integers = st.integers(-(2**63), 2**63 - 1).map(str)
values = st.one_of(
    st.builds(Value, st.just("String"), texts),
    st.builds(Value, st.just("Integer"), integers),
    st.builds(Value, st.just("Boolean"), st.sampled_from(["true", "false"])),
    st.builds(Value, words, texts | integers),
)
literals = st.builds(ast.Literal, values)
terms = variables | literals | st.builds(ast.CurrentTime)
parameters = st.builds(ast.Parameter, variables, names)
strings = st.builds(ast.String, texts)


def tuples(elements, **sizes):
    return st.lists(elements, max_size=3, **sizes).map(tuple)


# ---- formulas -------------------------------------------------------------------------------------

calls = st.builds(ast.Call, names, tuples(terms))
conditions = st.one_of(
    calls,
    st.builds(ast.Comparison, st.sampled_from(["=", *COMPARISONS]), terms, terms),
    st.builds(ast.Membership, terms, tuples(literals)),
    st.builds(ast.Matches, variables, names, st.booleans()),
    st.builds(ast.Truth, st.booleans()),
)
bare = st.sampled_from(["role", "permission"])
references = st.one_of(
    st.builds(ast.Reference, texts, st.just(False), st.none() | texts),
    st.builds(ast.Reference, bare, st.just(True), st.none() | texts),
    st.builds(ast.GlobalReference, texts, st.just(False)),
    st.builds(ast.GlobalReference, bare, st.just(True)),
)


def _flat(kind, parts):
    return kind(tuple(inner for part in parts for inner in (part.parts if isinstance(part, kind) else (part,))))


def formulas(leaves):
    def grown(inner):
        several = st.lists(inner, min_size=2, max_size=3)
        return st.one_of(
            st.builds(ast.Not, inner),
            several.map(lambda parts: _flat(ast.And, parts)),
            several.map(lambda parts: _flat(ast.Or, parts)),
        )

    return st.recursive(leaves, grown, max_leaves=8)


# ---- items ----------------------------------------------------------------------------------------

entries = st.one_of(
    st.builds(ast.NameList, names, tuples(strings)),
    st.builds(ast.RelationMap, names, tuples(st.builds(ast.Relation, names, st.none() | names))),
    st.builds(
        ast.Shorthand,
        st.builds(ast.Reference, texts) | st.builds(ast.Reference, bare, st.just(True)),
        formulas(conditions | references),
    ),
)
blocks = st.one_of(
    st.builds(ast.Block, st.sampled_from(["actor", "resource"]), names, tuples(names), tuples(entries)),
    st.builds(ast.Block, st.just("global"), st.none(), st.just(()), tuples(entries)),
)
heads = st.builds(ast.Head, names, tuples(parameters | variables | literals))
rules = st.builds(ast.Rule, heads, st.none() | formulas(conditions))
facts = tuples(st.builds(ast.Call, names, tuples(literals)) | st.builds(ast.FixtureUse, names))


@st.composite
def assertions(draw):
    args, clause = list(draw(tuples(literals))), None
    if draw(st.booleans()):
        parameter = draw(parameters)
        args.insert(draw(st.integers(0, len(args))), parameter)
        if parameter.variable.name != "_" and draw(st.booleans()):
            clause = ast.ValuesClause(parameter.variable, draw(st.booleans()), draw(tuples(literals)))
    return ast.Assertion(draw(st.booleans()), draw(names), tuple(args), clause)


never = st.builds(ast.NeverAssertion, heads, st.none() | formulas(conditions))
tests = st.builds(ast.Test, strings, facts, tuples(assertions(), min_size=1)) | st.builds(
    ast.Test, strings, st.just(()), tuples(assertions() | never, min_size=1)
)
items = st.one_of(
    blocks,
    rules,
    st.builds(ast.Declare, names, tuples(names)),
    st.builds(ast.Fixture, names, facts),
    tests,
)
policies = st.builds(ast.Policy, st.lists(items, max_size=5).map(tuple))
reserved = [*RESERVED, *LEGACY]
