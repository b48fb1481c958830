"""Blocks, what they inherit, and the limits of both."""

import pytest

from policy.rules import compile_text
from policy.rules.declarations import MAX_TYPES
from tests.policy.rules_text import problems_of

CONTENT = """
actor User {}
resource Content { roles = ["viewer"]; permissions = ["view"]; relations = { owner: User, parent: Content }; }
resource Page extends Content { roles = ["editor", "viewer"]; relations = { site: Site }; }
resource Post extends Page {}
resource Site {}
"""


def test_a_type_has_the_names_of_every_type_above_it():
    post = compile_text(CONTENT).types["Post"]
    assert post.roles == ("editor", "viewer")
    assert post.permissions == ("view",)
    assert post.relations == {"owner": "User", "parent": "Content", "site": "Site"}


def test_a_name_covers_its_subtypes_and_itself():
    subtypes = compile_text(CONTENT).subtypes
    assert subtypes["Content"] == {"Content", "Page", "Post"}
    assert subtypes["Page"] == {"Page", "Post"}
    assert subtypes["Actor"] == {"User"}
    assert subtypes["Resource"] == {"User", "Content", "Page", "Post", "Site"}
    assert subtypes["String"] == {"String"}


def test_a_relation_may_be_narrower_on_a_subtype():
    program = compile_text("actor U {} actor V extends U {} resource A { relations = { o: U }; } "
                           "resource B extends A { relations = { o: V }; }")  # fmt: skip
    assert program.types["B"].relations == {"o": "V"}


def test_two_ways_up_to_the_same_type():
    program = compile_text('resource A { roles = ["r"]; } resource B extends A {} resource C extends A {} '
                           'resource D extends B, C,{ "r" if "r"; }')  # fmt: skip
    assert program.subtypes["A"] == {"A", "B", "C", "D"}
    assert program.types["D"].roles == ("r",)


@pytest.mark.parametrize(
    "text", ["actor A extends Actor {}", "resource A extends Resource {}", "actor A extends Resource {}",
             "resource R {} actor A extends R {}", "actor User {};", "global {}"],
)  # fmt: skip
def test_these_blocks_are_fine(text):
    assert problems_of(text) == []


def test_the_global_block_is_told_apart_from_none():
    assert compile_text("global {}").has_global
    assert not compile_text("actor User {}").has_global
    program = compile_text('global { roles = ["a"]; permissions = ["b", "c"]; }')
    assert (program.global_roles, program.global_permissions) == (("a",), ("b", "c"))


def test_a_type_below_a_circle_is_not_blamed_for_it():
    text = "resource A extends B {} resource B extends A {} resource C extends A {}"
    assert problems_of(text) == ["`A` extends itself", "`B` extends itself"]


def test_types_have_a_limit():
    text = "".join(f"resource T{number} {{}}\n" for number in range(MAX_TYPES + 2))
    assert problems_of(text) == [f"the policy declares more than {MAX_TYPES:,} types"]


def test_long_lines_of_supertypes_are_no_burden():
    text = "resource T0 {}\n" + "".join(f"resource T{i} extends T{i - 1} {{}}\n" for i in range(1, MAX_TYPES))
    assert len(compile_text(text).subtypes["T0"]) == MAX_TYPES


def test_one_unknown_type_is_one_problem():
    """No pass after the first complains of what follows from it."""
    names = 'roles = ["r"]; relations = { up: Nope };'
    text = f'actor User {{}} resource A {{ {names} "r" if "r" on "up"; role if role on "up"; "r" if "up"; }}'
    assert problems_of(text) == ["unknown type `Nope`"]


def test_a_block_that_is_declared_again_is_one_problem():
    text = 'resource A { roles = ["r"]; "r" if "r"; } resource A { roles = ["s"]; "s" if "s"; "t" if "u"; }'
    assert problems_of(text) == ["`A` is declared more than once"]
