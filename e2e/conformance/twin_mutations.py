"""One field of a valid object changed at a time, as the schema of its kind suggests. The same objects give the same changes."""
import copy
import json

LONG = "a" * 300
QUANTITY = "io.k8s.apimachinery.pkg.api.resource.Quantity"
INT_OR_STRING = "io.k8s.apimachinery.pkg.util.intstr.IntOrString"
# Metadata of the server, and what it does not read.
NOT_SENT = {"managedFields", "selfLink", "uid", "resourceVersion", "creationTimestamp", "deletionTimestamp", "generation"}


class Schemas:
    """The schemas of an OpenAPI document, with references followed."""

    def __init__(self, document):
        self.named = document.get("components", {}).get("schemas", {})
        self.kinds = {}
        for name, schema in self.named.items():
            for gvk in schema.get("x-kubernetes-group-version-kind", []):
                self.kinds[gvk["group"], gvk["version"], gvk["kind"]] = {"$ref": "#/components/schemas/" + name}

    def resolve(self, schema):
        """The schema without references, and the name of the last one."""
        name = ""
        while True:
            parts = [schema] if "$ref" in schema else schema.get("allOf", [])
            if len(parts) != 1 or "$ref" not in parts[0]:
                return schema, name
            name = parts[0]["$ref"].rsplit("/", 1)[1]
            schema = self.named[name]

    def type_of(self, schema):
        schema, name = self.resolve(schema)
        if name == QUANTITY:
            return "quantity"
        if name == INT_OR_STRING or schema.get("format") == "int-or-string":
            return "int-or-string"
        if "properties" in schema:
            return "object"
        if schema.get("type") == "object":
            return "map" if "additionalProperties" in schema else "any"
        return schema.get("type", "any")

    def property(self, schema, key):
        schema, _ = self.resolve(schema)
        return schema.get("properties", {}).get(key) or schema.get("additionalProperties") or {}

    def items(self, schema):
        return self.resolve(schema)[0].get("items") or {}


def changed(value):
    """Other values for a field that is set: of its type and not."""
    if isinstance(value, bool):
        return [("flip", not value), ("type", "x")]
    if isinstance(value, (int, float)):
        return [("negative", -1), ("zero", 0), ("next", value + 1), ("large", 5000000000), ("million", 1000000), ("type", "x")]
    if isinstance(value, str):
        return [("empty", ""), ("other", value + "x"), ("invalid", "-In valid_!"), ("long", LONG), ("upper", "UPPER"), ("type", 7)]
    if isinstance(value, list):
        more = [("shorter", value[:-1]), ("twice", value + value[-1:]), ("null item", value + [None])] if value else []
        return [("empty", []), ("type", {})] + more
    if isinstance(value, dict):
        return [("empty", {}), ("type", []), ("unknown", {**value, "bogus": 1})]
    return []


def added(schemas, schema, sample):
    """Values for a field that is not set."""
    kind, (resolved, _) = schemas.type_of(schema), schemas.resolve(schema)
    values = [("sample", sample)] if sample is not None else []
    if kind == "boolean":
        values += [("true", True), ("false", False)]
    elif kind in ("integer", "number"):
        values += [("one", 1), ("zero", 0), ("negative", -1)]
    elif kind == "string":
        values += [("empty", ""), ("word", "x")] + [("enum " + e, e) for e in resolved.get("enum", []) if e]
    elif kind == "quantity":
        values += [("one", "1"), ("negative", "-1"), ("zero", 0), ("invalid", "1x")]
    elif kind == "int-or-string":
        values += [("one", 1), ("percent", "50%"), ("negative", -1), ("invalid", "x")]
    elif kind == "array":
        item = {"object": {}, "string": "x", "integer": 1}.get(schemas.type_of(schemas.items(schema)))
        values += [("empty", [])] + ([("blank", [item])] if item is not None else [])
    elif kind in ("object", "map", "any"):
        values += [("blank", {})]
    if kind == "map":
        inner = {"quantity": "1", "string": "x", "object": {}}.get(schemas.type_of(schemas.property(schema, "x")))
        values += [] if inner is None else [("entry", {"a": inner}), ("bad key", {"-In valid!": inner})]
    return values


def put(whole, path, value):
    """A copy of the object with another value at the path."""
    if not path:
        return copy.deepcopy(value)
    result = copy.copy(whole)
    result[path[0]] = put(whole[path[0]] if len(path) > 1 else None, path[1:], value)
    return result


def without(whole, path):
    result = copy.copy(whole)
    if len(path) == 1:
        del result[path[0]]
    else:
        result[path[0]] = without(whole[path[0]], path[1:])
    return result


def spelled(path):
    return "".join(f"[{p}]" if isinstance(p, int) else "." + p if p.replace("-", "").isalnum() else f"[{json.dumps(p)}]" for p in path)


def mutations(schemas, schema, whole, samples):
    """Yields a name and an object for each change. `samples` is an object of the kind in which every field has a value."""

    def walk(value, schema, sample, path):
        if isinstance(value, dict):
            properties = schemas.resolve(schema)[0].get("properties", {})
            for key in list(value) + [key for key in properties if key not in value]:
                if len(path) == 1 and path[0] == "metadata" and key in NOT_SENT or not path and key == "status":
                    continue
                at, inner = path + [key], schemas.property(schema, key)
                example = sample.get(key) if isinstance(sample, dict) else None
                if key not in value:
                    for name, other in added(schemas, inner, example):
                        yield f"{spelled(at)} added {name}", put(whole, at, other)
                    continue
                yield f"{spelled(at)} removed", without(whole, at)
                for name, other in changed(value[key]):
                    if other != value[key]:
                        yield f"{spelled(at)} {name}", put(whole, at, other)
                enum = schemas.resolve(inner)[0].get("enum", [])
                for other in enum:
                    if other != value[key] and other:
                        yield f"{spelled(at)} enum {other}", put(whole, at, other)
                yield from walk(value[key], inner, example, at)
            if schemas.type_of(schema) == "map" and value:
                first = next(iter(value.values()))
                for name, key in (("bad", "-In valid!"), ("long", LONG), ("empty", "")):
                    yield f"{spelled(path)} {name} key", put(whole, path + [key], first)
        elif isinstance(value, list):
            inner = schemas.items(schema)
            example = sample[0] if isinstance(sample, list) and sample else None
            for index, item in enumerate(value):
                at = path + [index]
                if not isinstance(item, (dict, list)):
                    for name, other in changed(item):
                        if other != item:
                            yield f"{spelled(at)} {name}", put(whole, at, other)
                elif isinstance(item, dict):
                    yield f"{spelled(at)} blank", put(whole, at, {})
                yield from walk(item, inner, example, at)

    yield "unchanged", whole
    yield from walk(whole, schema, samples or {}, [])
