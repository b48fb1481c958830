"""Holds answers to the description of the interface."""

import re

import jsonschema
import requests

from authz_project.openapi.document import document


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
