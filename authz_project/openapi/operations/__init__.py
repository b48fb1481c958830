"""All operations, in the order of a story: each example's answer follows from the requests before it."""

from authz_project.openapi.operations import authzen, changes, deprecated, local, policies, questions, service

GROUPS = (policies.GROUP, changes.GROUP, questions.GROUP, authzen.GROUP, local.GROUP, deprecated.GROUP, service.GROUP)
OPERATIONS = tuple(operation for group in GROUPS for operation in group.operations)
