"""Whatever JSON is sent, it is decoded or refused with a place; nothing else happens."""

import orjson
from hypothesis import given
from hypothesis import strategies as st

from facts import wire
from facts.views import changes_from_json
from facts.wire import Fact, batch_from_json, fact_from_text, pattern_from_text
from policy.errors import MalformedRequest
from policy.values import Value

TEXT = st.text(max_size=20)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXT
VALUES = st.fixed_dictionaries({}, optional={"type": SCALARS, "id": SCALARS})
FACTS = st.fixed_dictionaries(
    {}, optional={"predicate": SCALARS, "args": SCALARS | st.lists(VALUES | SCALARS, max_size=7)}
)
ANYTHING = st.recursive(
    SCALARS | VALUES | FACTS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["inserts", "deletes", "type", "id", "args", "predicate"]), inner, max_size=3)
    ),
    max_leaves=15,
)
NAMES = st.text(st.characters(exclude_categories=["C"]), min_size=1, max_size=20)
IDS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=100)
GOOD_FACTS = st.builds(
    Fact,
    NAMES,
    st.lists(
        st.builds(
            Value, NAMES.filter(lambda name: name not in ("Integer", "Boolean")), IDS.filter(lambda text: text != "*")
        ),
        min_size=1,
        max_size=5,
    ).map(tuple),
)


@given(ANYTHING)
def test_anything_is_decoded_or_refused(raw):
    for decode in (batch_from_json, wire.patterns_from_json, wire.values_from_json):
        try:
            decode(raw, "facts")
        except MalformedRequest as refused:
            assert refused.message.startswith("facts")
    try:
        changes_from_json(raw, "")
    except MalformedRequest as refused:
        assert refused.message


@given(GOOD_FACTS)
def test_good_facts_survive_the_way_there_and_back(fact):
    sent = orjson.loads(orjson.dumps(wire.fact_to_json(fact)))
    assert wire.fact_from_json(sent, "") == fact


@given(st.text(st.sampled_from('p(_:"{},;) T\\1'), max_size=25) | TEXT)
def test_any_text_is_read_or_refused(text):
    for read in (fact_from_text, pattern_from_text):
        try:
            read(text)
        except MalformedRequest as refused:
            assert refused.message
