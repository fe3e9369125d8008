"""As much of JSON Schema as our document uses; what it does not know it refuses to judge."""

from typing import Any

TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}
SAID = {"title", "description", "default", "contentEncoding"}


def check(value: Any, schema: dict[str, Any], document: dict[str, Any], path: str = "$") -> None:
    """Raise AssertionError where a value is not what a schema says."""
    for word, said in schema.items():
        match word:
            case "$ref":
                target = document["components"]["schemas"][said.rpartition("/")[2]]
                check(value, target, document, path)
            case "type":
                kinds = TYPES[said]
                is_wrong_bool = isinstance(value, bool) and bool not in kinds
                assert isinstance(value, kinds) and not is_wrong_bool, f"{path}: {value!r} is not of type {said}"
            case "enum":
                assert value in said, f"{path}: {value!r} is not among {said}"
            case "anyOf":
                assert any(_fits(value, each, document) for each in said), f"{path}: {value!r} fits none of {said}"
            case "items" if said is not False:
                for position, each in enumerate(value):
                    check(each, said, document, f"{path}[{position}]")
            case "prefixItems":
                for position, (each, inner) in enumerate(zip(value, said, strict=True)):
                    check(each, inner, document, f"{path}[{position}]")
            case "required":
                missing = [name for name in said if name not in value]
                assert not missing, f"{path}: {missing} are missing"
            case "properties":
                for name, inner in said.items():
                    if name in value:
                        check(value[name], inner, document, f"{path}.{name}")
            case "additionalProperties":
                more = [name for name in value if name not in schema.get("properties", {})]
                assert said is not False or not more, f"{path}: {more} are not described"
                for name in more if isinstance(said, dict) else ():
                    check(value[name], said, document, f"{path}.{name}")
            case "minItems" | "maxItems" | "items":
                pass
            case _:
                assert word in SAID, f"{path}: the document says {word!r}, which no test understands"


def _fits(value: Any, schema: dict[str, Any], document: dict[str, Any]) -> bool:
    try:
        check(value, schema, document)
    except AssertionError:
        return False
    return True
