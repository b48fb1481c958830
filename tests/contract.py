"""Holds answers to the description of the interface."""

import re
from functools import cache

import jsonschema
import requests

from authz_project.openapi import document_of, tags_of
from authz_project.urls import endpoints

OPERATIONS = [operation for tag in tags_of(endpoints) for operation in tag.operations]
# The one list of bodies that are right: the examples of the description. Every operation has one.
SAMPLES = {f"{each.method} {each.path}": each.example.get("body") for each in OPERATIONS}
SOURCE = SAMPLES["POST /api/policy"]["src"]  # the policy of the examples

ASKED = {each.path: each.example["body"] for each in OPERATIONS if each.method in each.endpoint.questions & {"POST"}}


def send_story(api) -> None:
    """Send the policy and the facts that the examples of questions are about."""
    for operation in ("POST /api/policy", "POST /api/batch"):
        assert api.post(operation.removeprefix("POST "), SAMPLES[operation]).status_code == 200


@cache
def document() -> dict:
    return document_of(endpoints)


def assert_fits(schema: dict, instance: object) -> None:
    jsonschema.Draft202012Validator({**schema, "components": document()["components"]}).validate(instance)


def assert_described(method: str, path: str, answer: requests.Response) -> None:
    """The status, the headers and the body are among those that are described."""
    described = document()["paths"][path][method.lower()]["responses"]
    assert str(answer.status_code) in described, answer.text[:500]
    response = described[str(answer.status_code)]
    for name, header in response["headers"].items():
        declared = document()["components"]["headers"][header["$ref"].rsplit("/", 1)[-1]]
        assert name in answer.headers or not declared.get("required"), name
        assert re.search(declared["schema"].get("pattern", ""), answer.headers.get(name, "0")), name
    assert answer.headers["Content-Type"] == "application/json"
    assert_fits(response["content"]["application/json"]["schema"], answer.json())
