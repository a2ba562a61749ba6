//! JSON-RPC error codes by name (§16.1); what is answered when is decided in `gateway/fault.rs`.

/// Not JSON.
pub const PARSE_ERROR: i64 = -32700;
/// No message, or not now.
pub const INVALID_REQUEST: i64 = -32600;
/// Unknown method, or one of a capability that was not declared.
pub const METHOD_NOT_FOUND: i64 = -32601;
/// Wrong params, unknown tool.
pub const INVALID_PARAMS: i64 = -32602;
/// A failure on our side of the host, see `data.reason`.
pub const INTERNAL_ERROR: i64 = -32603;
/// No such resource (legacy); never said to a modern host (RES-3).
pub const RESOURCE_NOT_FOUND: i64 = -32002;
/// A header that differs from the body.
pub const HEADER_MISMATCH: i64 = -32020;
/// The request needs a capability that it did not declare.
pub const MISSING_CAPABILITY: i64 = -32021;
/// A revision that is not served.
pub const UNSUPPORTED_VERSION: i64 = -32022;
/// Codes kept for the specification; undefined ones must not be sent.
pub const RESERVED: std::ops::RangeInclusive<i64> = -32099..=-32020;
/// A URL must be opened first (2025-11-25 alone).
pub const URL_REQUIRED: i64 = -32042;
/// The user of a host rejected a sampling request.
pub const REJECTED_BY_USER: i64 = -1;
/// A rate, a quota or a number of calls at a time is exceeded; a code of ours.
pub const LIMITED: i64 = 4290;
