"""The known cases: policies, bindings, tables, and the rows that the produced SQL must select."""

import json
from pathlib import Path

import pytest

from tests.localsql.databases import plain

CASES = json.loads((Path(__file__).parent.parent / "cases" / "local.json").read_text())


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_the_sql_selects_what_it_should(api, caller_database, case):
    assert api.post("/policy", {"src": case["policy"]}).status_code in (200, 202)
    if case["central_facts"]:
        assert api.post("/batch", [{"inserts": case["central_facts"]}]).status_code == 200
    bindings = case["data_bindings"]
    if "dialect:" not in bindings:
        bindings += f"\ndialect: {caller_database.dialect}\n"
    answer = api.post(f"/{case['endpoint']}", {**case["request"], "data_bindings": bindings})
    if "expected_error" in case:
        assert answer.status_code == case["expected_error"]
        assert answer.json()["message"]
        return
    assert answer.status_code == 200, answer.content
    caller_database.fresh(case["ddl"])
    columns, rows = caller_database.run(case["run"].replace("<sql>", answer.json()["sql"]))
    assert plain(rows) == plain(case["expected"])
    assert columns == case.get("columns", columns)
