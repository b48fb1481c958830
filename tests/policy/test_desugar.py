"""Shorthand, where the goldens of its rows do not say it: names, variables, and what belongs together."""

from tests.policy.rules_text import problems_of, rules_of, types_of, warnings_of

ORG = 'actor User {} actor Bot {} resource Org { roles = ["member"]; relations = { owner: User, runner: Bot }; } '


def in_repo(rule: str, more: str = "") -> str:
    names = 'roles = ["reader"]; permissions = ["read"]; relations = { org: Org, owner: User, runner: Bot };'
    return f"{ORG} resource Repo {{ {names} {rule} }} {more}"


def test_every_on_has_a_related_variable_of_its_own():
    assert rules_of(in_repo('"read" if "member" on "org" and "member" on "org";')) == [
        'has_permission(actor, "read", resource) if '
        'has_relation(resource, "org", org#1) and has_role(actor, "member", org#1) and '
        'has_relation(resource, "org", org#2) and has_role(actor, "member", org#2);'
    ]


def test_a_variable_named_like_a_relation_is_not_the_related_one():
    rules = rules_of(in_repo('"read" if "member" on "org" and likes(actor, org);'))
    assert rules[0].endswith('has_role(actor, "member", org#1) and likes(actor, org);')


def test_calls_are_copied_with_the_implicit_variables():
    rules = rules_of(in_repo('"read" if p(resource, "x", User{"u"}, 3, true, @current_unix_time, y) and q(y, actor);'))
    assert rules[0].endswith('if p(resource, "x", User{"u"}, 3, true, @current_unix_time, y) and q(y, actor);')


def test_a_bare_word_is_one_variable_in_head_body_and_calls():
    rules = rules_of(in_repo('role if role on "org" and not is_secret(role) and grants(actor, role);'))
    assert rules == [
        'has_role(actor, role, resource) if has_relation(resource, "org", org#1) and has_role(actor, role, org#1) and '
        "not is_secret(role) and grants(actor, role);"
    ]


def test_the_other_word_in_the_body_is_any_of_them():
    rules = rules_of(in_repo('permission if role on "org";'))
    assert rules[0].startswith("has_permission(actor, permission, resource) if ")
    assert rules[0].endswith("has_role(actor, role, org#1);")
    assert types_of(in_repo('permission if role on "org";'), "has_permission")["role"] == "String"


def test_global_words_are_any_global_role():
    text = 'actor User {} global { roles = ["a"]; } resource R { permissions = ["read"]; "read" if global role; }'
    assert rules_of(text) == ['has_permission(actor, "read", resource) if has_role(actor, role);']


def test_an_actor_that_a_relation_leads_to_is_of_its_type():
    assert types_of(in_repo('"read" if "owner";'), "has_permission")["actor"] == "User"
    assert types_of(in_repo('"read" if "owner" on "org" and "reader";'), "has_permission")["actor"] == "User"


def test_only_the_branch_with_the_relation_narrows_the_actor():
    text = in_repo('"read" if is_open(resource) and ("owner" or "runner" or "reader");')
    assert types_of(text, "has_permission")["actor"] == "Actor"
    assert [types_of(text, "or#1", index)["actor"] for index in range(3)] == ["User", "Bot", "Actor"]


def test_a_relation_under_a_not_narrows_nothing_outside():
    text = in_repo('"read" if "reader" and not "owner";')
    assert types_of(text, "has_permission")["actor"] == "Actor"


def test_inherited_names_are_usable_and_mean_the_same():
    text = in_repo("", 'resource Fork extends Repo { "reader" if "member" on "org"; "read" if "reader"; }')
    assert [rule.split(" if ")[0] for rule in rules_of(text)] == [
        'has_role(actor, "reader", resource)',
        'has_permission(actor, "read", resource)',
    ]
    assert types_of(text, "has_role")["resource"] == "Fork"


def test_no_op_rules_are_legal():
    assert problems_of(in_repo('"reader" if "reader"; role if role; "read" if true;')) == []


def test_the_same_name_may_differ_between_types():
    text = 'actor U {} resource A { roles = ["x"]; } '
    text += 'resource B { permissions = ["x"]; relations = { a: A }; "x" if "x" on "a"; }'
    assert rules_of(text) == [
        'has_permission(actor, "x", resource) if has_relation(resource, "a", a#1) and has_role(actor, "x", a#1);'
    ]


def test_names_on_an_abstract_type_are_those_of_its_subtypes():
    text = 'actor U {} resource A { roles = ["x"]; } '
    text += 'resource B { roles = ["y"]; relations = { up: Resource }; "y" if "x" on "up"; }'
    assert types_of(text, "has_role") == {"actor": "U", "resource": "B", "up#1": "Resource"}


def test_each_mistake_of_a_rule_is_told():
    problems = problems_of(in_repo('"raed" if "redaer" and "membre" on "org" or "x" on "y";'))
    assert problems == [
        "`raed` is not declared in resource `Repo`",
        "`redaer` is not declared in resource `Repo`",
        "`membre` is not declared on `Org`, the type of relation `org`",
        "`y` is not a relation of resource `Repo`",
    ]


def test_shorthand_is_not_warned_of_its_implicit_variables():
    assert warnings_of(in_repo('"read" if is_public(resource); permission if role on "org";')) == []
    assert warnings_of(in_repo('"read" if has_level(resource, level);')) == [
        "`level` is used only once, so it matches any value"
    ]
