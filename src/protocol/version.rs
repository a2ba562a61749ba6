//! The revisions of the protocol and what each of them has.
//!
//! The tables of both eras in one place; the adapters at the edges act on them.

/// A published revision, older before newer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Revision {
    /// 2024-11-05
    V2024_11_05,
    /// 2025-03-26
    V2025_03_26,
    /// 2025-06-18
    V2025_06_18,
    /// 2025-11-25, the last with an `initialize` handshake
    V2025_11_25,
    /// 2026-07-28, the first without
    V2026_07_28,
}

/// How a leg speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Era {
    /// `initialize` sessions.
    Legacy,
    /// Stateless, with metadata in each request.
    Modern,
}

impl Era {
    /// As shown to people.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Legacy => "legacy",
            Self::Modern => "modern",
        }
    }
}

impl Revision {
    /// All revisions that we serve, newest first: the order of `supportedVersions` (VER-10).
    pub const ALL: [Self; 5] =
        [Self::V2026_07_28, Self::V2025_11_25, Self::V2025_06_18, Self::V2025_03_26, Self::V2024_11_05];
    /// The newest of the legacy era: what we propose and what we answer to unknown proposals (VER-6, PRB-9).
    pub const LATEST_LEGACY: Self = Self::V2025_11_25;
    /// The newest of the modern era.
    pub const LATEST_MODERN: Self = Self::V2026_07_28;

    /// Its date, the form on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::V2024_11_05 => "2024-11-05",
            Self::V2025_03_26 => "2025-03-26",
            Self::V2025_06_18 => "2025-06-18",
            Self::V2025_11_25 => "2025-11-25",
            Self::V2026_07_28 => "2026-07-28",
        }
    }

    /// The revision of that date.
    pub fn parse(date: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|revision| revision.as_str() == date)
    }

    /// The era it belongs to.
    pub const fn era(self) -> Era {
        match self {
            Self::V2026_07_28 => Era::Modern,
            Self::V2024_11_05 | Self::V2025_03_26 | Self::V2025_06_18 | Self::V2025_11_25 => Era::Legacy,
        }
    }

    /// Whether a leg of this revision may carry batches (ENV-9).
    pub fn has_batches(self) -> bool {
        self == Self::V2025_03_26
    }
}
