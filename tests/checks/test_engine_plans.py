"""What plans and statements look like: what they may read through, how large they get, how deep they follow."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from checks.engine.compile import Compiled, Root, Shape, answers_of
from checks.engine.plan.plan import Branch, FactScan, Plan, Same
from checks.engine.rules.clauses import Call, Col, Const, Other, Slot, Var
from checks.engine.sql.text import PostgreSQL, SQLite
from checks.errors import CannotEnumerate
from policy.values import STRING
from tests.checks.in_memory import Engine

CASES = json.loads((Path(__file__).parent.parent / "cases" / "decisions.json").read_text())
POLICIES = sorted((Path(__file__).parent.parent / "policies").glob("*.polar"))
MOST_TEXT = 256_000


# ---- what is read ---------------------------------------------------------------------------------------------


def plans(plan: Plan) -> Iterator[Plan]:
    yield plan
    for each in plan.nested():
        yield from plans(each)


def read_through(branch: Branch) -> Iterator[FactScan]:
    """Facts that are read with no entity that is given or known from what was read before."""
    order = [source.number for source in branch.sources]
    for place, source in enumerate(branch.sources):
        if isinstance(source, FactScan) and not any(
            _leads_to(each, source, order[place:]) for each in branch.conditions
        ):
            yield source


def _leads_to(condition: object, source: FactScan, unread: list[int]) -> bool:
    if not isinstance(condition, Same):
        return False
    for column, known in ((condition.left, condition.right), (condition.right, condition.left)):
        if isinstance(column, Col) and column.source == source.number:
            is_name = source.signature.types[int(column.name[1])] == STRING and isinstance(known, (Const, Other))
            if not is_name and not (isinstance(known, Col) and known.source in unread):
                return True
    return False


def unguided(question: Compiled) -> list[str]:
    branches = (branch for each in question.roots for plan in plans(each.plan) for branch in plan.branches())
    return [f"{source} in {branch}" for branch in branches for source in read_through(branch)]


@pytest.mark.parametrize("path", POLICIES, ids=lambda path: path.stem)
def test_deciding_reads_no_facts_that_nothing_leads_to(path):
    engine = Engine(path.read_text())
    program = engine.rules.program
    for name, known in program.types.items():
        for action in known.permissions[:4]:
            for actor in (each for each, kind in program.types.items() if kind.kind == "actor"):
                assert unguided(engine.compiled("authorize", action, actor, name)) == []


def test_deciding_generated_policies_reads_hardly_any_facts_that_nothing_leads_to():
    """An untyped relation between what is asked and what is stored may leave no way in; all else must have one."""
    found = [bool(unguided(_engine_of(case).compiled("authorize", "p0"))) for case in CASES]
    assert sum(found) <= len(found) // 50


def test_no_decision_scans_the_facts_or_indexes_them_by_itself():
    for case in CASES[::3]:
        engine = _engine_of(case)
        for action in ("p0", "p1"):
            statement = engine.compiled("authorize", action).statement
            if statement is None:
                continue
            values = [each.id if isinstance(each, Const) else "[]" for each in statement.parameters]
            plan = engine.database.execute("EXPLAIN QUERY PLAN " + statement.sql, values).fetchall()
            steps = [row[3] for row in plan]
            assert not [step for step in steps if re.search(r"SCAN f\d|SEARCH f\d+ USING AUTOMATIC", step)]


def _engine_of(case: dict) -> Engine:
    engine = Engine(case["policy"])
    for fact in case["facts"]:
        engine.store(fact["predicate"], *(f"{value['type']}:{value['id']}" for value in fact["args"]))
    return engine


# ---- how large ---------------------------------------------------------------------------------------------------


def diamond(levels: int, connective: str) -> str:
    blocks = ["actor User {}"]
    for level in range(levels):
        below = f"T{level + 1}"
        rule = f'"r" if "r" on "left" {connective} "r" on "right";'
        body = f"relations = {{ left: {below}, right: {below} }}; {rule}" if level < levels - 1 else ""
        blocks.append(f'resource T{level} {{ roles = ["r"]; permissions = ["read"]; {body} "read" if "r"; }}')
    return "\n".join(blocks)


@pytest.mark.parametrize("dialect", [SQLite(), PostgreSQL()], ids=["sqlite", "postgresql"])
@pytest.mark.parametrize("connective", ["and", "or"])
@pytest.mark.parametrize("kind", ["authorize", "list", "actions", "actors"])
def test_a_diamond_of_twelve_levels_stays_small(kind, connective, dialect):
    question = Engine(diamond(12, connective), dialect).compiled(kind, "read", resource="T0")
    assert not question.rounds
    assert len(question.statement.sql) < MOST_TEXT


@pytest.mark.parametrize("connective", ["and", "or"])
def test_a_diamond_of_twelve_levels_is_decided(connective):
    engine = Engine(diamond(12, connective))
    for level in range(11):
        for side in ("left", "right"):
            engine.store("has_relation", f"T{level}:x", side, f"T{level + 1}:{'x' if side == 'left' else 'y'}")
            engine.store("has_relation", f"T{level}:y", side, f"T{level + 1}:y")
    engine.store("has_role", "User:one", "r", "T11:x")
    engine.store("has_role", "User:both", "r", "T11:x")
    engine.store("has_role", "User:both", "r", "T11:y")
    assert engine.ask("authorize", "read", "T0", actor="both", resource="x")
    assert engine.ask("authorize", "read", "T0", actor="one", resource="x") == (connective == "or")
    assert engine.ask("list", "read", "T0", actor="both") == ["x", "y"]
    assert engine.ask("list", "read", "T0", actor="one") == (["x"] if connective == "or" else [])


def test_two_hundred_types_with_ten_roles_make_no_large_statement():
    blocks = ["actor User {}", "actor Team {}"]
    for number in range(200):
        roles = ", ".join(f'"r{role}"' for role in range(10))
        parent = f'relations = {{ parent: T{number - 1} }}; role if role on "parent";' if number % 10 else ""
        steps = " ".join(f'"r{role}" if "r{role + 1}";' for role in range(9))
        grants = " ".join(f'"p{role}" if "r{role}";' for role in range(10))
        permissions = roles.replace("r", "p")
        names = f"roles = [{roles}]; permissions = [{permissions}];"
        blocks.append(f"resource T{number} {{ {names} {parent} {steps} {grants} }}")
    blocks.append(
        "has_role(u: User, role: String, r: Resource) if t matches Team and has_group(u, t) and has_role(t, role, r);"
    )
    engine = Engine("\n".join(blocks))
    for kind in ("authorize", "list", "actions", "actors"):
        assert len(engine.compiled(kind, "p3", resource="T199").statement.sql) < MOST_TEXT


def list_of(resource: str, slot: str = "actor") -> Root:
    return Root((Call("allow", ("User", STRING, resource), (Slot(slot), Const("read"), Var(0))),))


def test_roots_share_what_a_statement_may_weigh_only_where_they_are_too_heavy_together(monkeypatch):
    roots = (list_of("T0"), *(list_of("T6", f"actor{number}") for number in range(9)))
    weights = [each.plan.weight for each in Engine(diamond(7, "or")).compiled_for(Shape(roots, 1)).roots]
    assert weights[0] > sum(weights) // len(roots) >= weights[-1]
    monkeypatch.setattr("checks.engine.compile.MOST_WEIGHT", sum(weights))
    fitting = Engine(diamond(7, "or")).compiled_for(Shape(roots, 1))
    assert [each.plan.weight for each in fitting.roots] == weights and not fitting.rounds
    monkeypatch.setattr("checks.engine.compile.MOST_WEIGHT", sum(weights) - 1)
    shared = Engine(diamond(7, "or")).compiled_for(Shape(roots, 1))
    assert shared.rounds and [each.plan.weight for each in shared.roots[1:]] == weights[1:]


# ---- in rounds ----------------------------------------------------------------------------------------------------

BLOCKED = """
actor User {}
resource Doc { permissions = ["read"]; }
has_permission(u: User, "read", d: Doc) if sees(u, d);
sees(u: User, d: Doc) if admin(u) and not shut(u, d);
sees(u: User, d: Doc) if owner(u, d);
shut(u: User, d: Doc) if blocked(u, d);
shut(u: User, d: Doc) if closed(d);
"""
FORMS = {"written out": (), "tabled": ("_written_out",), "in rounds": ("_written_out", "_tabled")}


@pytest.mark.parametrize("form", FORMS)
def test_all_that_nothing_keeps_from_the_actor_is_listed_in_every_form(form, monkeypatch):
    for name in FORMS[form]:
        monkeypatch.setattr(f"checks.engine.compile._Fitting.{name}", lambda *_: None)
    engine = Engine(BLOCKED)
    for predicate, *args in (("admin", "User:ann"), ("admin", "User:ben"), ("blocked", "User:ben", "Doc:x"),
                             ("blocked", "User:eve", "Doc:y"), ("owner", "User:eve", "Doc:y")):  # fmt: skip
        engine.store(predicate, *args)
    made = engine.compiled_for(Shape((list_of("Doc"),), 1))
    assert bool(made.rounds) == (form == "in rounds")

    def answers(actor: str) -> list:
        return answers_of(engine.rows(made, {"actor": actor, "now": 0}))

    assert (answers("ann"), answers("eve"), answers("bob")) == ([(None,)], [("y",)], [])
    with pytest.raises(CannotEnumerate, match="all values except some, such as `x`"):
        answers("ben")
    engine.store("closed", "Doc:z")
    with pytest.raises(CannotEnumerate, match="all values except some, such as `z`"):
        answers("ann")


# ---- how deep -----------------------------------------------------------------------------------------------------

FOLDERS = """
actor User {}
resource Folder {
  roles = ["viewer"]; permissions = ["read"]; relations = { parent: Folder };
  role if role on "parent"; "read" if "viewer";
}
"""


@pytest.mark.parametrize("depth", [1, 99, 100, 101, 10_000])
def test_a_chain_of_folders_answers_however_long_and_though_it_is_a_circle(depth):
    engine = Engine(FOLDERS)
    for number in range(depth):
        engine.store("has_relation", f"Folder:{number + 1}", "parent", f"Folder:{number}")
    engine.store("has_relation", "Folder:0", "parent", f"Folder:{depth}")
    engine.store("has_role", "User:ann", "viewer", "Folder:0")
    assert engine.ask("authorize", "read", "Folder", actor="ann", resource=str(depth))
    assert not engine.ask("authorize", "read", "Folder", actor="bob", resource=str(depth))
    assert len(engine.ask("list", "read", "Folder", actor="ann")) == depth + 1
