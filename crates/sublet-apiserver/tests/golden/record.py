#!/usr/bin/env python3
"""Records what a reference kube-apiserver makes of the cases below `strategy/`.

Usage: record.py URL TOKEN [FILE...]. The server runs with its admission plugins disabled. Each file
holds a base object and cases that change it; the answer is kept beside the case as `object` or as
`errors`. Creates are dry runs; for updates the old object is created, updated by dry run and deleted.
"""
import copy, glob, json, os, re, ssl, sys, urllib.error, urllib.request

URL, TOKEN = sys.argv[1], sys.argv[2]
UID = "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
CONTEXT = ssl._create_unverified_context()


def call(method, path, body=None):
    request = urllib.request.Request(URL + path, method=method, data=None if body is None else json.dumps(body).encode())
    request.add_header("Authorization", "Bearer " + TOKEN)
    request.add_header("Content-Type", "application/json")
    try:
        response = urllib.request.urlopen(request, context=CONTEXT)
    except urllib.error.HTTPError as error:
        response = error
    warnings = [w.split('"', 1)[1].rsplit('"', 1)[0].replace('\\"', '"') for w in response.headers.get_all("Warning") or []]
    return response.status, json.loads(response.read()), warnings


def change(value, edits):
    """`{"spec.containers.0.image": "x"}`; null removes, `+` appends. A dot inside a key is written `\\.`."""
    value = copy.deepcopy(value)
    for path, new in edits.items():
        keys = [k.replace("\0", ".") for k in path.replace("\\.", "\0").split(".")]
        at = value
        for key, after in zip(keys, keys[1:]):
            if isinstance(at, list):
                at = at[int(key)]
            else:
                at = at.setdefault(key, [] if after == "+" else {})
        last = keys[-1]
        if isinstance(at, list):
            if last == "+":
                at.append(new)
            elif new is None:
                del at[int(last)]
            else:
                at[int(last)] = new
        elif new is None:
            at.pop(last, None)
        else:
            at[last] = new
    return value


def outcome(case, status, body, warnings, uid):
    for key in ("object", "errors", "message", "warnings"):
        case.pop(key, None)
    if status < 300:
        metadata = body["metadata"]
        uid = uid or metadata["uid"]
        for key in ("uid", "resourceVersion", "creationTimestamp", "managedFields", "selfLink"):
            metadata.pop(key, None)
        case["object"] = json.loads(json.dumps(body).replace(uid, "UID"))
    else:
        body = json.loads(re.sub(UID, "UID", json.dumps(body)))
        case["message"] = body["message"]
        case["errors"] = body.get("details", {}).get("causes", [])
    if warnings:
        case["warnings"] = warnings


def record(path):
    document = json.load(open(path))
    collection = document["path"]
    for case in document["cases"]:
        if "skip" in case:
            continue
        base = change(document["base"], case.get("set", {}))
        name = base["metadata"]["name"]
        if "update" not in case and "status" not in case:
            outcome(case, *call("POST", collection + "?dryRun=All&fieldValidation=Strict", base), None)
            continue
        call("DELETE", f"{collection}/{name}?gracePeriodSeconds=0")
        status, old, _ = call("POST", collection, base)
        assert status < 300, (path, case["name"], old)
        if "stored" in case:
            body = change(old, case["stored"])
            status, old, _ = call("PUT", f"{collection}/{name}/status", body)
            assert status < 300, (path, case["name"], old)
        part = case.get("part", "status" if "status" in case else "")
        body = change(old, case.get("update") or case.get("status"))
        target = f"{collection}/{name}" + (f"/{part}" if part else "")
        outcome(case, *call("PUT", target + "?dryRun=All&fieldValidation=Strict", body), old["metadata"]["uid"])
        call("DELETE", f"{collection}/{name}?gracePeriodSeconds=0", {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"})
    lines = [json.dumps(c, ensure_ascii=False, sort_keys=True) for c in document.pop("cases")]
    head = json.dumps(document, ensure_ascii=False, indent=1)
    open(path, "w").write(head[:-2] + ",\n \"cases\": [\n  " + ",\n  ".join(lines) + "\n ]\n}\n")
    print(path, len(lines))


here = os.path.dirname(os.path.abspath(__file__))
for file in sys.argv[3:] or sorted(glob.glob(here + "/strategy/*.json")):
    record(file)
