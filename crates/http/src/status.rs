//! The status codes that a small server sends, with their phrases.

/// A status code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Status {
    /// 200.
    Ok = 200,
    /// 204.
    NoContent = 204,
    /// 206.
    PartialContent = 206,
    /// 301.
    MovedPermanently = 301,
    /// 304.
    NotModified = 304,
    /// 400.
    BadRequest = 400,
    /// 404.
    NotFound = 404,
    /// 405.
    MethodNotAllowed = 405,
    /// 408.
    RequestTimeout = 408,
    /// 412.
    PreconditionFailed = 412,
    /// 413.
    ContentTooLarge = 413,
    /// 414.
    UriTooLong = 414,
    /// 416.
    RangeNotSatisfiable = 416,
    /// 417.
    ExpectationFailed = 417,
    /// 431.
    HeaderFieldsTooLarge = 431,
    /// 500.
    InternalServerError = 500,
    /// 501.
    NotImplemented = 501,
    /// 503.
    ServiceUnavailable = 503,
    /// 505.
    VersionNotSupported = 505,
}

impl Status {
    /// The number on the wire.
    #[must_use]
    pub fn code(self) -> u16 {
        self as u16
    }

    /// The phrase beside the number, for people.
    #[must_use]
    pub fn phrase(self) -> &'static str {
        match self {
            Self::Ok => "OK",
            Self::NoContent => "No Content",
            Self::PartialContent => "Partial Content",
            Self::MovedPermanently => "Moved Permanently",
            Self::NotModified => "Not Modified",
            Self::BadRequest => "Bad Request",
            Self::NotFound => "Not Found",
            Self::MethodNotAllowed => "Method Not Allowed",
            Self::RequestTimeout => "Request Timeout",
            Self::PreconditionFailed => "Precondition Failed",
            Self::ContentTooLarge => "Content Too Large",
            Self::UriTooLong => "URI Too Long",
            Self::RangeNotSatisfiable => "Range Not Satisfiable",
            Self::ExpectationFailed => "Expectation Failed",
            Self::HeaderFieldsTooLarge => "Request Header Fields Too Large",
            Self::InternalServerError => "Internal Server Error",
            Self::NotImplemented => "Not Implemented",
            Self::ServiceUnavailable => "Service Unavailable",
            Self::VersionNotSupported => "HTTP Version Not Supported",
        }
    }
}
