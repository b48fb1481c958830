"""What a changed policy changes by brute force, the preview tells of; `run_mutations` tries more of it."""

import pytest

from policy.models import PolicyVersion
from tests.properties import mutations
from tests.sampling import some

MUTANTS = 6


@pytest.mark.parametrize("seed", some((1, 2), 2))
def test_what_a_change_does_is_seen(db, seed):
    tried = list(mutations.trials(seed, MUTANTS))
    assert len(tried) == MUTANTS
    assert [trial.text for trial in tried if not trial.is_found or trial.missed] == []
    assert PolicyVersion.objects.count() == len({trial.base.name for trial in tried})


@pytest.mark.long
@pytest.mark.one_database
def test_what_a_change_does_is_seen_in_a_few_values(db, monkeypatch):
    """As if there were too many facts to ask about all of them."""
    monkeypatch.setattr("checks.compare.differences._FEW_FACTS", -1)
    monkeypatch.setattr("checks.compare.differences._OTHERS", 8)
    monkeypatch.setattr("checks.compare.differences.QUOTA", 8)
    assert [trial.text for trial in mutations.trials(3, MUTANTS) if not trial.is_found] == []
