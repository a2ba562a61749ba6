//! Levels of log messages, as the protocol names them (LOG-*).

/// How grave a log message is, the least grave first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LogLevel {
    /// For developers.
    Debug,
    /// Ordinary.
    Info,
    /// Ordinary, but worth a look.
    Notice,
    /// May become an error.
    Warning,
    /// Something failed.
    Error,
    /// A part does not work.
    Critical,
    /// Somebody must act at once.
    Alert,
    /// Nothing works.
    Emergency,
}

impl LogLevel {
    const ALL: [Self; 8] = [
        Self::Debug,
        Self::Info,
        Self::Notice,
        Self::Warning,
        Self::Error,
        Self::Critical,
        Self::Alert,
        Self::Emergency,
    ];

    /// Its word on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Notice => "notice",
            Self::Warning => "warning",
            Self::Error => "error",
            Self::Critical => "critical",
            Self::Alert => "alert",
            Self::Emergency => "emergency",
        }
    }

    /// The level of a raw JSON string; `None` for anything else (LOG-3).
    pub fn parse(raw: &[u8]) -> Option<Self> {
        let word = super::json::text_of(raw)?;
        Self::ALL.into_iter().find(|level| level.as_str() == word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log3_a_level_is_one_of_eight_words() {
        assert_eq!(LogLevel::parse(br#""notice""#), Some(LogLevel::Notice));
        assert!(LogLevel::Warning < LogLevel::Error);
        for bad in [&br#""Notice""#[..], b"3", b"null", br#""warn""#] {
            assert_eq!(LogLevel::parse(bad), None);
        }
    }
}
