"""The JSON Schema of a registry file, including workflows."""

from pydantic.json_schema import models_json_schema

from chatops.config.registry_model import RegistryFile


def json_schema() -> dict[str, object]:
    """Return the schema that ``chatops registry schema`` prints."""
    from chatops.config.workflow_model import WorkflowEntry  # only needed for the schema

    _, schema = models_json_schema([(RegistryFile, "validation"), (WorkflowEntry, "validation")])
    definitions = schema["$defs"]
    file = definitions.pop(RegistryFile.__name__)
    file["properties"]["workflows"]["additionalProperties"] = {"$ref": f"#/$defs/{WorkflowEntry.__name__}"}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **file,
        "$defs": definitions,
        "title": "chatops model_registry.json",
    }
