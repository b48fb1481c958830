"""Full paths of AuthZEN's endpoints."""

from checks.authzen import views
from policy.endpoint import Endpoint

endpoints: dict[str, Endpoint] = {
    "access/v1/evaluation": views.AccessEvaluation(),
    "access/v1/evaluations": views.EvaluateMany(),
    "access/v1/search/subject": views.SearchSubjects(),
    "access/v1/search/resource": views.SearchResources(),
    "access/v1/search/action": views.SearchActions(),
    ".well-known/authzen-configuration": views.Metadata(),
}
