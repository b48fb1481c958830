"""Models of OpenFGA as policies, as they were read and found good; and that their tests hold."""

from pathlib import Path

import pytest

from authz_project.importers.convert import carried
from authz_project.importers.ir import ImportReport, ModelKind
from authz_project.importers.openfga import read_files
from checks.testing import run
from facts.accept import check_facts
from facts.wire import line_of
from policy.language.format import formatted
from policy.rules import compile_text

MODELS = sorted(Path(__file__).with_name("openfga_models").glob("*.fga.yaml"))


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.name.partition(".")[0])
def test_a_model_becomes_a_policy_for_people(db, path, golden):
    report = ImportReport()
    found = carried(read_files(str(path), []), report)
    assert report.of(ModelKind.LOST) == []
    program = compile_text(found.policy)
    assert program.warnings == ()
    assert run(program).success
    assert formatted(found.policy) == found.policy
    check_facts(program, found.facts, None)
    said = "".join(f"# {kind.value}: {each.message}\n" for kind in ModelKind for each in report.of(kind))
    golden(path, found.policy + said + "".join(f"{line_of(fact)}\n" for fact in found.facts))
