//! The parameters that operations share.

/// A query or path parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Parameter {
    pub name: &'static str,
    pub in_path: bool,
    pub value_type: &'static str,
    pub description: &'static str,
}

const fn query(name: &'static str, value_type: &'static str, description: &'static str) -> Parameter {
    Parameter { name, in_path: false, value_type, description }
}

const fn path(name: &'static str, description: &'static str) -> Parameter {
    Parameter { name, in_path: true, value_type: "string", description }
}

pub(super) const PRETTY: Parameter = query(
    "pretty",
    "string",
    "With 'true' the answer is indented for people to read. It is by default for browsers and for tools like curl and wget.",
);
pub(super) const NAMESPACE: Parameter = path("namespace", "The namespace of the object.");
pub(super) const NAME: Parameter = path("name", "The name of the object.");
pub(super) const PATH: Parameter = path("path", "The path behind the proxy.");
pub(super) const PATH_QUERY: Parameter = query("path", "string", "The path to ask for behind the proxy.");
pub(super) const PORTS: Parameter = query("ports", "integer", "The ports to forward.");
pub(super) const RESOURCE_VERSION: Parameter = query(
    "resourceVersion",
    "string",
    "The version that the answer must be at least as new as, or exactly this one: resourceVersionMatch says which. With 0 any version will do, without it the newest is asked for. A watch goes on behind this version.",
);

const CONTINUE: Parameter = query(
    "continue",
    "string",
    "The token of the last page, to ask for the next one; the other parameters must be the same. When the token is too old the answer is 410 ResourceExpired with a new token, which continues with objects as they are now.",
);
const FIELD_SELECTOR: Parameter = query(
    "fieldSelector",
    "string",
    "Only objects with these field values are in the list of returned objects, such as metadata.name=a,spec.nodeName!=b. Which fields can be asked for depends on the kind.",
);
const LABEL_SELECTOR: Parameter = query(
    "labelSelector",
    "string",
    "Only objects with labels like these are in the list of returned objects, such as a=b,c!=d,e in (f,g),!h.",
);
const LIMIT: Parameter = query(
    "limit",
    "integer",
    "The most objects to answer with. When there are more, metadata.continue of the answer is a token for the rest, and all pages together show one moment. A watch takes no notice of it.",
);
const RESOURCE_VERSION_MATCH: Parameter =
    query("resourceVersionMatch", "string", "How resourceVersion is meant: NotOlderThan or Exact. Not allowed without resourceVersion.");
const SEND_INITIAL_EVENTS: Parameter = query(
    "sendInitialEvents",
    "boolean",
    "With watch: begin with the objects there are as ADDED events, and then send a bookmark with the annotation k8s.io/initial-events-end. Needs resourceVersionMatch=NotOlderThan and allowWatchBookmarks.",
);
const SHARD_SELECTOR: Parameter = query("shardSelector", "string", "Only the objects of a shard.");
const TIMEOUT_SECONDS: Parameter = query("timeoutSeconds", "integer", "How many seconds the list or watch may take before it is ended.");

/// Of lists and watches.
pub(super) const LIST: &[Parameter] = &[
    query(
        "allowWatchBookmarks",
        "boolean",
        "Whether a watch may send events of type BOOKMARK, which carry nothing but a newer resourceVersion. There may be any number of them, and none.",
    ),
    CONTINUE,
    FIELD_SELECTOR,
    LABEL_SELECTOR,
    LIMIT,
    RESOURCE_VERSION,
    RESOURCE_VERSION_MATCH,
    SEND_INITIAL_EVENTS,
    SHARD_SELECTOR,
    TIMEOUT_SECONDS,
    query(
        "watch",
        "boolean",
        "Watch for changes to the described resources instead of listing them: a stream of events that tell what was added, changed and deleted. It begins behind resourceVersion.",
    ),
];

const DRY_RUN: Parameter = query(
    "dryRun",
    "string",
    "'All' does everything but keeping the result: the request is checked, admitted and answered as if it were not there. No other value is allowed.",
);
const FIELD_MANAGER: Parameter = query(
    "fieldManager",
    "string",
    "The name under which the fields of this request are owned: printable characters, 128 at most. It is needed to apply; elsewhere it is taken from the user agent when it is not there.",
);
const FIELD_VALIDATION: Parameter = query(
    "fieldValidation",
    "string",
    "What becomes of fields that are unknown or told twice. Ignore: they are dropped, of duplicates the last counts. Warn, the default: the same, with a warning for each in the answer. Strict: the request is refused, and the error names them all.",
);

/// Of creates and updates.
pub(super) const WRITE: &[Parameter] = &[DRY_RUN, FIELD_MANAGER, FIELD_VALIDATION];

/// Of patches.
pub(super) const PATCH: &[Parameter] = &[
    DRY_RUN,
    FIELD_MANAGER,
    FIELD_VALIDATION,
    query(
        "force",
        "boolean",
        "Whether an apply takes fields that others own instead of failing with a conflict. Not allowed with other patches.",
    ),
];

const GRACE_PERIOD: Parameter = query(
    "gracePeriodSeconds",
    "integer",
    "How many seconds the object may take to end; zero is at once, negative numbers are not allowed. Without it the default of the kind counts, or what the object says.",
);
const IGNORE_READ_ERROR: Parameter = query(
    "ignoreStoreReadErrorWithClusterBreakingPotential",
    "boolean",
    "Deletes even an object that cannot be read from the store. It goes at once, without regard to finalizers and preconditions; what belongs to it may be left behind. Needs the right to do so, and cannot be combined with other parameters.",
);
const ORPHAN: Parameter = query(
    "orphanDependents",
    "boolean",
    "Deprecated: use propagationPolicy. Whether dependents are kept; only one of the two may be there.",
);
const PROPAGATION: Parameter = query(
    "propagationPolicy",
    "string",
    "What becomes of dependents. Orphan: they stay. Background: they are deleted after the object. Foreground: the object stays until they are gone. Without it the kind and the finalizers of the object decide.",
);

/// Of deletes.
pub(super) const DELETE: &[Parameter] = &[DRY_RUN, GRACE_PERIOD, IGNORE_READ_ERROR, ORPHAN, PROPAGATION];

/// Of deletes of whole collections.
pub(super) const DELETE_COLLECTION: &[Parameter] = &[
    CONTINUE,
    DRY_RUN,
    FIELD_SELECTOR,
    GRACE_PERIOD,
    IGNORE_READ_ERROR,
    LABEL_SELECTOR,
    LIMIT,
    ORPHAN,
    PROPAGATION,
    RESOURCE_VERSION,
    RESOURCE_VERSION_MATCH,
    SEND_INITIAL_EVENTS,
    SHARD_SELECTOR,
    TIMEOUT_SECONDS,
];

const CONTAINER: Parameter = query("container", "string", "The container; needed when there are several.");
const STDERR: Parameter = query("stderr", "boolean", "Whether the error stream is sent.");
const STDIN: Parameter = query("stdin", "boolean", "Whether the input stream is taken.");
const STDOUT: Parameter = query("stdout", "boolean", "Whether the output stream is sent.");
const TTY: Parameter = query("tty", "boolean", "Whether there is a terminal.");

pub(super) const ATTACH: &[Parameter] = &[CONTAINER, STDERR, STDIN, STDOUT, TTY];
pub(super) const EXEC: &[Parameter] =
    &[query("command", "string", "The command and its arguments."), CONTAINER, STDERR, STDIN, STDOUT, TTY];
pub(super) const LOG: &[Parameter] = &[
    CONTAINER,
    query("follow", "boolean", "Whether to go on as the log grows."),
    query("insecureSkipTLSVerifyBackend", "boolean", "Whether the certificate of the node is left unchecked."),
    query("limitBytes", "integer", "The most bytes to send."),
    PRETTY,
    query("previous", "boolean", "The log of the container before its restart."),
    query("sinceSeconds", "integer", "Only lines that are newer."),
    query("stream", "string", "All, Stdout or Stderr."),
    query("tailLines", "integer", "Only the last lines."),
    query("timestamps", "boolean", "Whether each line starts with its time."),
];
