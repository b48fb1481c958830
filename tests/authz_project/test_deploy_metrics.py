"""The dashboard, the rules and the page about metrics speak of metrics that there are, by labels that they have."""

import json
import re

import pytest
import yaml
from prometheus_client.mmap_dict import MmapedDict, mmap_key
from prometheus_client.parser import text_string_to_metric_families

from authz_project import console
from authz_project.metrics import METRICS, Metric
from tests.samples import page
from tests.service import ROOT

DEPLOY = ROOT / "authz_project" / "deploy"
BY_NAME = {metric.whole: metric for metric in METRICS.values()}
OF_PROMETHEUS = {"instance", "job", "le"}  # labels that it adds, or that buckets have
NAME = re.compile(r"\bauthz_\w+")
SELECTED = re.compile(r"\b(authz_\w+)(?:\{([^}]*)\})?")
GROUPED = re.compile(r"\bby \(([^)]*)\)")


def dashboard() -> dict:
    return json.loads((DEPLOY / "grafana-dashboard.json").read_text())


def rules() -> list[dict]:
    (group,) = yaml.safe_load((DEPLOY / "alerts.yml").read_text())["groups"]
    return group["rules"]


def metric_of(name: str) -> Metric:
    series = name if name in BY_NAME else re.sub(r"_(bucket|sum|count)$", "", name)
    metric = BY_NAME[series]
    assert (series == name) == (metric.kind != "histogram"), f"{name}: a {metric.kind}"
    return metric


def expressions() -> list[str]:
    panels = [panel for panel in dashboard()["panels"] if panel["type"] != "row"]
    return [*(target["expr"] for panel in panels for target in panel["targets"]), *(each["expr"] for each in rules())]


@pytest.mark.parametrize("expression", expressions())
def test_an_expression_speaks_of_what_there_is(expression):
    labels = set(OF_PROMETHEUS)
    for name, selected in SELECTED.findall(expression):
        metric = metric_of(name)
        assert set(re.findall(r"(\w+)\s*=", selected)) <= set(metric.labels) | OF_PROMETHEUS, name
        labels |= set(metric.labels)
    for grouped in GROUPED.findall(expression):
        assert {each.strip() for each in grouped.split(",")} <= labels
    assert expression.count("(") == expression.count(")") and expression.count("{") == expression.count("}")
    for counter in (name for name in NAME.findall(expression) if name in BY_NAME and BY_NAME[name].kind == "counter"):
        assert re.search(rf"(rate|increase)\({counter}\b", expression), f"{counter} only ever grows"


def test_every_metric_is_on_the_dashboard():
    shown = {metric_of(name) for expression in expressions() for name in NAME.findall(expression)}
    assert set(METRICS.values()) - shown == set()


def test_the_dashboard_is_one():
    found = dashboard()
    assert found["title"] == "authz" and found["schemaVersion"] >= 39
    ids = [panel["id"] for panel in found["panels"]]
    assert len(set(ids)) == len(ids)
    for panel in found["panels"]:
        assert panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24
        if panel["type"] != "row":
            assert panel["title"] and panel["description"] and panel["datasource"]["uid"] == "${datasource}"
    assert [each["name"] for each in found["templating"]["list"]] == ["datasource", "instance"]


def test_every_rule_says_what_is_wrong_and_what_to_do():
    assert len({each["alert"] for each in rules()}) == len(rules())
    for each in rules():
        assert set(each) <= {"alert", "expr", "for", "labels", "annotations"}
        assert each["labels"]["severity"] in ("page", "ticket")
        assert set(each["annotations"]) == {"summary", "action"}
        assert re.fullmatch(r"\d+[smh]", each.get("for", "1m"))


def test_prometheus_finds_the_rules_and_the_port():
    found = yaml.safe_load((DEPLOY / "prometheus.yml").read_text())
    assert found["rule_files"] == ["alerts.yml"]
    (scraped,) = found["scrape_configs"]
    assert scraped["job_name"] == "authz"
    (place,) = scraped["static_configs"][0]["targets"]
    assert f"--metrics-port {place.rpartition(':')[2]}" in page("operations").text


# ---- the page ----------------------------------------------------------------------------------------------------


def test_every_metric_is_on_the_page_with_its_kind_and_labels():
    rows = re.findall(r"^\| `(authz_\w+)` \| (\w+) \| (.*?) \| .+ \|$", page("operations").text, re.MULTILINE)
    told = {name: (kind, tuple(re.findall(r"`(\w+)`", labels))) for name, kind, labels in rows}
    assert told == {metric.whole: (metric.kind, metric.labels) for metric in METRICS.values()}


def test_the_sample_is_as_prometheus_reads_it():
    families = list(text_string_to_metric_families(page("operations").the_only("prometheus")))
    assert len(families) == 4
    for family in families:
        for sample in family.samples:
            metric = metric_of(sample.name)
            assert set(sample.labels) - {"le"} == set(metric.labels)
            assert family.documentation == metric.help and family.type == metric.kind


# ---- the first page of the admin ---------------------------------------------------------------------------------


def test_decisions_of_the_last_minute_are_those_of_all_workers(tmp_path, settings):
    name = METRICS["decisions_last_minute"].whole
    for process, number in ((1, 12), (2, 30)):
        file = MmapedDict(str(tmp_path / f"gauge_livesum_{process}.db"))
        file.write_value(mmap_key(name, name, [], [], "…"), number, 0.0)
        file.close()
    assert console.decisions_last_minute() is None
    settings.METRICS_FOLDER = str(tmp_path)
    assert console.decisions_last_minute() == 42
    settings.METRICS_FOLDER = str(tmp_path / "gone")
    assert console.decisions_last_minute() is None
