"""The known cases: policies, bindings, tables, and the rows that the produced SQL must select."""

import json
from pathlib import Path

import pytest

from tests.localsql.databases import plain
from tests.sampling import some

CASES = json.loads((Path(__file__).parent.parent / "cases" / "local.json").read_text())


@pytest.mark.parametrize("case", some(CASES, 4), ids=lambda case: case["name"])
def test_the_sql_selects_what_it_should(api, caller_databases, case):
    assert api.post("/policy", {"src": case["policy"]}).status_code in (200, 202)
    if case["central_facts"]:
        assert api.post("/batch", [{"inserts": case["central_facts"]}]).status_code == 200
    for database in caller_databases:
        for dialect in database.dialects:
            check(api, database, dialect, case)


def check(api, database, dialect: str, case: dict) -> None:
    bindings = case["data_bindings"]
    if "dialect:" not in bindings:
        bindings += f"\ndialect: {dialect}\n"
    answer = api.post(f"/{case['endpoint']}", {**case["request"], "data_bindings": bindings})
    if "expected_error" in case:
        assert answer.status_code == case["expected_error"]
        assert answer.json()["message"]
        return
    assert answer.status_code == 200, answer.content
    database.fresh(case["ddl"])
    columns, rows = database.run(case["run"].replace("<sql>", answer.json()["sql"]))
    assert plain(rows) == plain(case["expected"]), dialect
    assert columns == case.get("columns", columns)
