#!/usr/bin/env python3
"""Records what a reference kube-apiserver answers to the requests in `admission.json`.

Usage: record_admission.py URL TOKEN. The server runs with its default admission plugins and without
controllers; the token is that of a member of system:masters. The requests build on each other, so the
server must not know the objects yet.
"""
import json, os, re, ssl, sys, urllib.error, urllib.request

URL, TOKEN = sys.argv[1], sys.argv[2]
FILE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "admission.json")
CONTEXT = ssl._create_unverified_context()
MASKS = [
    ("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "UID"),
    ("kube-api-access-[a-z0-9]{5}", "kube-api-access-NAME"),
    (r"\bg-[a-z0-9]{5}\b", "g-NAME"),
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "TIME"),
]
UNSTABLE = {"resourceVersion", "managedFields", "uid", "clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "nodePort"}


def stable(value):
    if isinstance(value, dict):
        return {key: stable(v) for key, v in value.items() if key not in UNSTABLE}
    if isinstance(value, list):
        return [stable(v) for v in value]
    if isinstance(value, str):
        # What follows in messages is a difference in Go's notation.
        value = value.split("\n")[0]
        for pattern, name in MASKS:
            value = re.sub(pattern, name, value)
    return value


steps = json.load(open(FILE))
for step in steps:
    body = step.get("body")
    request = urllib.request.Request(URL + step["path"], method=step["method"], data=None if body is None else json.dumps(body).encode())
    request.add_header("Authorization", "Bearer " + TOKEN)
    request.add_header("Content-Type", step.get("type", "application/json"))
    try:
        response = urllib.request.urlopen(request, context=CONTEXT)
    except urllib.error.HTTPError as error:
        response = error
    warnings = [w.split('"', 1)[1].rsplit('"', 1)[0].replace('\\"', '"') for w in response.headers.get_all("Warning") or []]
    step["code"], step["answer"] = response.status, stable(json.loads(response.read()))
    step.pop("warnings", None)
    if warnings:
        step["warnings"] = warnings
lines = [json.dumps(step, ensure_ascii=False, sort_keys=True) for step in steps]
open(FILE, "w").write("[\n" + ",\n".join(lines) + "\n]\n")
