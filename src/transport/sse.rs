//! Server-sent events out of chunks, cut anywhere: the framing of an HTTP answer that is a stream.
//!
//! Knows the framing alone: what an event's data means, and whether its name matters, is its reader's. Comments and
//! events without data are skipped, but for what they say of the id and of the time to reconnect after (SES-7).

use std::time::Duration;

use bytes::{Buf, Bytes};

/// What a field's name and blanks may add to its data.
const FIELD: usize = 64;
/// Longest id that is kept.
const MAX_ID: usize = 1024;
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// An event with data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Its name; `None` means `message`.
    pub name: Option<Bytes>,
    /// Its data lines, joined.
    pub data: Bytes,
}

/// An event or a line past the limit; nothing can be read after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong {
    /// So much of it was there.
    pub size: u64,
}

/// The data of the event that is being read.
#[derive(Default)]
enum Data {
    #[default]
    None,
    /// A slice of what came, as long as it is one line.
    One(Bytes),
    Many(Vec<u8>),
}

impl Data {
    fn len(&self) -> usize {
        match self {
            Self::None => 0,
            Self::One(line) => line.len(),
            Self::Many(lines) => lines.len(),
        }
    }
}

/// Reads events.
pub struct EventReader {
    limit: usize,
    /// What was fed and not read yet.
    chunk: Bytes,
    /// The beginning of a line whose end has not come.
    partial: Vec<u8>,
    /// The last line ended in CR: a LF after it belongs to it.
    after_return: bool,
    /// No line was read yet.
    fresh: bool,
    name: Option<Bytes>,
    data: Data,
    id: Option<Bytes>,
    retry: Option<Duration>,
}

impl EventReader {
    /// Events with more than `limit` bytes of data are [`TooLong`].
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            chunk: Bytes::new(),
            partial: Vec::new(),
            after_return: false,
            fresh: true,
            name: None,
            data: Data::None,
            id: None,
            retry: None,
        }
    }

    /// Takes the next chunk; all events of the one before must have been read.
    pub fn feed(&mut self, chunk: Bytes) {
        debug_assert!(self.chunk.is_empty(), "events of the last chunk are left");
        self.chunk = chunk;
    }

    /// The id that was named last; it names the place in the stream to go on after.
    pub fn last_id(&self) -> Option<&[u8]> {
        self.id.as_deref()
    }

    /// The time after which to reconnect, when the server named one.
    pub fn retry(&self) -> Option<Duration> {
        self.retry
    }

    /// A stream that goes on where this one ended begins anew: what was half read of an event is lost with it.
    pub fn restart(&mut self) {
        let Self { limit, id, retry, .. } = std::mem::replace(self, Self::new(0));
        *self = Self { id, retry, ..Self::new(limit) };
    }

    /// How many bytes it holds of an event that is not whole.
    pub fn held(&self) -> usize {
        self.chunk.len() + self.partial.len() + self.data.len()
    }

    /// The next event that is whole; `None` when more must be fed.
    pub fn next_event(&mut self) -> Result<Option<Event>, TooLong> {
        loop {
            if self.after_return && !self.chunk.is_empty() {
                self.after_return = false;
                if self.chunk[0] == b'\n' {
                    self.chunk.advance(1);
                }
            }
            let Some(end) = memchr::memchr2(b'\n', b'\r', &self.chunk) else {
                self.partial.extend_from_slice(&self.chunk);
                self.chunk.clear();
                return self.check(self.partial.len().saturating_sub(FIELD)).map(|()| None);
            };
            let mut line = self.chunk.split_to(end);
            self.after_return = self.chunk[0] == b'\r';
            self.chunk.advance(1);
            if !self.partial.is_empty() {
                self.partial.extend_from_slice(&line);
                line = std::mem::take(&mut self.partial).into();
            }
            if std::mem::take(&mut self.fresh) && line.starts_with(BYTE_ORDER_MARK) {
                line.advance(BYTE_ORDER_MARK.len());
            }
            if !line.is_empty() {
                self.field(line)?;
            } else if let Some(event) = self.dispatch() {
                return Ok(Some(event));
            }
        }
    }

    /// The event that the stream ended in. Some servers leave out the blank line after the last one; whether it is
    /// whole shows in its data.
    pub fn finish(&mut self) -> Option<Event> {
        let line = std::mem::take(&mut self.partial);
        if !line.is_empty() {
            self.field(line.into()).ok()?;
        }
        self.dispatch()
    }

    fn check(&self, more: usize) -> Result<(), TooLong> {
        let held = match &self.data {
            Data::None => 0,
            Data::One(data) => data.len(),
            Data::Many(data) => data.len(),
        };
        let size = held + more;
        if size > self.limit { Err(TooLong { size: size as u64 }) } else { Ok(()) }
    }

    fn field(&mut self, mut line: Bytes) -> Result<(), TooLong> {
        let (name, value) = match memchr::memchr(b':', &line) {
            Some(colon) => {
                let name = line.split_to(colon);
                line.advance(1);
                if line.first() == Some(&b' ') {
                    line.advance(1);
                }
                (name, line)
            }
            None => (line, Bytes::new()),
        };
        match &name[..] {
            b"data" => {
                self.check(value.len())?;
                self.data = match std::mem::take(&mut self.data) {
                    Data::None => Data::One(value),
                    Data::One(first) => Data::Many([&first[..], b"\n", &value[..]].concat()),
                    Data::Many(mut data) => {
                        data.push(b'\n');
                        data.extend_from_slice(&value);
                        Data::Many(data)
                    }
                };
            }
            b"event" => self.name = (!value.is_empty()).then(|| Bytes::copy_from_slice(&value)),
            b"id" if !value.contains(&0) && value.len() <= MAX_ID => {
                // A slice would keep the whole chunk for as long as the stream lives.
                self.id = (!value.is_empty()).then(|| Bytes::copy_from_slice(&value));
            }
            b"retry" if !value.is_empty() && value.iter().all(u8::is_ascii_digit) => {
                let milliseconds = std::str::from_utf8(&value).ok().and_then(|digits| digits.parse().ok());
                self.retry = Some(Duration::from_millis(milliseconds.unwrap_or(u64::MAX)));
            }
            // Comments have an empty name; what is unknown means nothing.
            _ => {}
        }
        Ok(())
    }

    fn dispatch(&mut self) -> Option<Event> {
        let name = self.name.take();
        let data = match std::mem::take(&mut self.data) {
            Data::None => return None,
            Data::One(data) => data,
            Data::Many(data) => data.into(),
        };
        (!data.is_empty()).then_some(Event { name, data })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// All events of a stream that comes in these chunks; names as text.
    fn read(chunks: &[&[u8]]) -> (Vec<(String, String)>, EventReader) {
        let mut reader = EventReader::new(1 << 20);
        let mut events = Vec::new();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let shape = |event: Event| (event.name.map_or_else(|| "message".to_owned(), |n| text(&n)), text(&event.data));
        for chunk in chunks {
            reader.feed(Bytes::copy_from_slice(chunk));
            while let Some(event) = reader.next_event().unwrap() {
                events.push(shape(event));
            }
        }
        events.extend(reader.finish().map(shape));
        (events, reader)
    }

    fn check(stream: &str, expected: &[(&str, &str)]) {
        let (events, _) = read(&[stream.as_bytes()]);
        let events: Vec<_> = events.iter().map(|(name, data)| (name.as_str(), data.as_str())).collect();
        assert_eq!(events, expected, "{stream:?}");
    }

    /// Each line a stream of the corpus, with what stands in it.
    const CORPUS: [(&str, &[(&str, &str)]); 14] = [
        ("data: a\n\n", &[("message", "a")]),
        ("data:a\n\n", &[("message", "a")]),
        ("data:  a\n\n", &[("message", " a")]),
        (": hello\n\ndata: a\n: in between\n\n:\n\n", &[("message", "a")]),
        ("event: message\ndata: a\n\nevent: endpoint\ndata: /x\n\n", &[("message", "a"), ("endpoint", "/x")]),
        ("data: {\ndata: \"a\":1\ndata: }\n\n", &[("message", "{\n\"a\":1\n}")]),
        ("data: a\r\n\r\ndata: b\r\rdata: c\n\n", &[("message", "a"), ("message", "b"), ("message", "c")]),
        ("id: 1\ndata:\n\nid: 2\ndata: a\n\n", &[("message", "a")]),
        ("event: gone\n\ndata: a\n\n", &[("message", "a")]),
        ("retry: 10\n\nretry: x\n\ndata: a\n\n", &[("message", "a")]),
        ("data\ndata\n\ndata: a\n\n", &[("message", "\n"), ("message", "a")]),
        ("\u{feff}data: a\n\n", &[("message", "a")]),
        ("unknown: x\ndata : no\ndata: é漢\n\n", &[("message", "é漢")]),
        ("data: a\n\ndata: the end is missing", &[("message", "a"), ("message", "the end is missing")]),
    ];

    #[test]
    fn d076_every_shape_of_an_event_is_read() {
        for (stream, expected) in CORPUS {
            check(stream, expected);
        }
    }

    #[test]
    fn d076_cut_anywhere_it_is_the_same() {
        let stream = CORPUS.map(|(stream, _)| stream.trim_start_matches('\u{feff}')).join("\n\n").repeat(2);
        let (whole, _) = read(&[stream.as_bytes()]);
        assert!(whole.len() > 30);
        for at in 0..=stream.len() {
            let (a, b) = stream.as_bytes().split_at(at);
            assert_eq!(read(&[a, b]).0, whole, "cut at {at}");
        }
        let bytes: Vec<&[u8]> = stream.as_bytes().chunks(1).collect();
        assert_eq!(read(&bytes).0, whole);
    }

    #[test]
    fn ses7_the_last_id_and_the_time_to_reconnect_are_kept() {
        let (_, mut reader) = read(&[b"id: a-7\nretry: 1500\ndata:\n\nid: no\0\ndata: x\n\n"]);
        assert_eq!(reader.last_id(), Some(&b"a-7"[..]));
        assert_eq!(reader.retry(), Some(Duration::from_millis(1500)));
        reader.restart();
        assert_eq!(reader.last_id(), Some(&b"a-7"[..]));
        let (_, reader) = read(&[b"id: a\n\nid\ndata: x\n\n"]);
        assert_eq!(reader.last_id(), None, "an empty id takes the last one back");
        let (_, reader) = read(&[b"retry: 99999999999999999999999\n\n"]);
        assert!(reader.retry() > Some(Duration::from_secs(3600)));
    }

    #[test]
    fn d078_what_is_too_long_is_refused_as_soon_as_it_is() {
        let mut reader = EventReader::new(10);
        reader.feed(Bytes::from_static(b"data: 0123456789\n\n"));
        assert_eq!(reader.next_event().unwrap().unwrap().data, "0123456789");
        reader.feed(Bytes::from_static(b"data: 012345\ndata: 67890\n"));
        assert_eq!(reader.next_event(), Err(TooLong { size: 11 }), "all lines count");
        let mut reader = EventReader::new(10);
        reader.feed(Bytes::from_static(b"data: 01234567890\n\n"));
        assert_eq!(reader.next_event(), Err(TooLong { size: 11 }));
        let mut reader = EventReader::new(10);
        let mut fed = 0;
        while reader.next_event().is_ok() {
            reader.feed(Bytes::from_static(b"data: 0123"));
            fed += 1;
            assert!(fed < 20, "a line without an end is not bounded");
        }
    }

    #[test]
    fn one_line_of_one_chunk_is_not_copied() {
        let chunk = Bytes::from_static(b"data: {\"a\":1}\n\n");
        let mut reader = EventReader::new(100);
        reader.feed(chunk.clone());
        let event = reader.next_event().unwrap().unwrap();
        assert_eq!(event.data.as_ptr(), chunk[6..].as_ptr());
    }

    proptest! {
        #[test]
        fn d076_any_stream_cut_anywhere_is_the_same(
            pieces in prop::collection::vec(prop::sample::select(vec![
                "data: ", "data", ":", " ", "\n", "\r", "\r\n", "x", "é", "id: 1", "event: m", "retry: 5", "\n\n", "{\"a\":1}",
            ]), 0..60),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
        ) {
            let stream = pieces.concat();
            let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
            at.extend([0, stream.len()]);
            at.sort_unstable();
            let chunks: Vec<&[u8]> = at.windows(2).map(|w| &stream.as_bytes()[w[0]..w[1]]).collect();
            let (whole, one) = read(&[stream.as_bytes()]);
            let (cut, many) = read(&chunks);
            prop_assert_eq!(whole, cut);
            prop_assert_eq!((one.last_id(), one.retry()), (many.last_id(), many.retry()));
        }
    }
}
