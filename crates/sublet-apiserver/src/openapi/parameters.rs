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

pub(super) const PRETTY: Parameter = query("pretty", "string", "'true' asks for indented output.");
pub(super) const NAMESPACE: Parameter = path("namespace", "The namespace of the object.");
pub(super) const NAME: Parameter = path("name", "The name of the object.");
pub(super) const PATH: Parameter = path("path", "The path behind the proxy.");
pub(super) const PATH_QUERY: Parameter = query("path", "string", "The path to ask for behind the proxy.");
pub(super) const PORTS: Parameter = query("ports", "integer", "The ports to forward.");
pub(super) const RESOURCE_VERSION: Parameter =
    query("resourceVersion", "string", "Which versions may be answered with; any, at least this, or exactly this.");

const CONTINUE: Parameter = query("continue", "string", "The token of the last page, to ask for the next one.");
const FIELD_SELECTOR: Parameter = query("fieldSelector", "string", "Only objects with these field values.");
const LABEL_SELECTOR: Parameter = query("labelSelector", "string", "Only objects with these labels.");
const LIMIT: Parameter = query("limit", "integer", "The most objects to answer with; the answer carries a token for the rest.");
const RESOURCE_VERSION_MATCH: Parameter = query("resourceVersionMatch", "string", "How resourceVersion is meant: NotOlderThan or Exact.");
const SEND_INITIAL_EVENTS: Parameter =
    query("sendInitialEvents", "boolean", "With watch: begin with the objects there are, then a bookmark.");
const SHARD_SELECTOR: Parameter = query("shardSelector", "string", "Only the objects of a shard.");
const TIMEOUT_SECONDS: Parameter = query("timeoutSeconds", "integer", "How long the list or watch may take.");

/// Of lists and watches.
pub(super) const LIST: &[Parameter] = &[
    query("allowWatchBookmarks", "boolean", "Whether a watch may send bookmarks."),
    CONTINUE,
    FIELD_SELECTOR,
    LABEL_SELECTOR,
    LIMIT,
    RESOURCE_VERSION,
    RESOURCE_VERSION_MATCH,
    SEND_INITIAL_EVENTS,
    SHARD_SELECTOR,
    TIMEOUT_SECONDS,
    query("watch", "boolean", "Whether to follow changes instead of listing."),
];

const DRY_RUN: Parameter = query("dryRun", "string", "'All' does everything but keeping the result.");
const FIELD_MANAGER: Parameter = query("fieldManager", "string", "The name under which fields are owned.");
const FIELD_VALIDATION: Parameter =
    query("fieldValidation", "string", "What becomes of unknown and duplicate fields: Ignore, Warn or Strict.");

/// Of creates and updates.
pub(super) const WRITE: &[Parameter] = &[DRY_RUN, FIELD_MANAGER, FIELD_VALIDATION];

/// Of patches.
pub(super) const PATCH: &[Parameter] =
    &[DRY_RUN, FIELD_MANAGER, FIELD_VALIDATION, query("force", "boolean", "Whether apply takes fields that others own.")];

const GRACE_PERIOD: Parameter = query("gracePeriodSeconds", "integer", "How long the object may take to end; zero is at once.");
const IGNORE_READ_ERROR: Parameter = query(
    "ignoreStoreReadErrorWithClusterBreakingPotential",
    "boolean",
    "Deletes even what cannot be read. Finalizers and preconditions are skipped.",
);
const ORPHAN: Parameter = query("orphanDependents", "boolean", "Deprecated: use propagationPolicy.");
const PROPAGATION: Parameter = query("propagationPolicy", "string", "What becomes of dependents: Orphan, Background or Foreground.");

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
