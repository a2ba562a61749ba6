//! Lines out of a byte stream, each a slice of what was read, none longer than a limit.
//!
//! An over-long line is read to its end and thrown away but for its two ends, in which its id may stand, so
//! that whoever waits for it can be told (D-26, ENV-12).

use std::io;

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt};

/// How much is kept of either end of an over-long line.
const ENDS: usize = 4096;
/// How much is asked of the stream at a time, at least.
const READ: usize = 64 << 10;
/// The longest line that room is made for before it is there.
const MAX_EXPECTED: usize = 4 << 20;
/// A buffer larger than this is not kept for the next line.
const KEEP: usize = 4 * READ;
/// After so many lines others get their turn: a peer that floods us must not hold up the rest.
const TURN: u32 = 64;

/// What stands between two newlines.
#[derive(Debug)]
pub enum Frame {
    /// A line, without its end.
    Line(Bytes),
    /// A line past the limit.
    TooLong {
        /// How it began.
        head: Bytes,
        /// How it ended.
        tail: Bytes,
        /// Its length in bytes.
        length: u64,
    },
}

/// Reads lines.
pub struct LineReader<R> {
    stream: R,
    buffer: BytesMut,
    /// No newline stands before this.
    searched: usize,
    limit: usize,
    too_long: Option<(Bytes, u64)>,
    /// The length of the last line that did not fit at once: the next of its kind gets room in one step.
    last_long: usize,
    /// Nothing was given out yet.
    fresh: bool,
    /// Lines given out since others had their turn.
    in_a_row: u32,
    ended: bool,
}

/// Some runtimes write it before everything, though JSON has none.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

impl<R: AsyncRead + Unpin> LineReader<R> {
    /// Reads from `stream`; lines past `limit` bytes are [`Frame::TooLong`].
    pub fn new(stream: R, limit: usize) -> Self {
        Self {
            stream,
            buffer: BytesMut::new(),
            searched: 0,
            limit,
            too_long: None,
            last_long: 0,
            fresh: true,
            in_a_row: 0,
            ended: false,
        }
    }

    /// The next line that is not blank; `None` at the end of the stream. A last line without its newline counts.
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn next(&mut self) -> io::Result<Option<Frame>> {
        if self.in_a_row == TURN {
            self.in_a_row = 0;
            tokio::task::yield_now().await;
        }
        loop {
            if let Some(frame) = self.buffered() {
                self.in_a_row += 1;
                return Ok(Some(frame));
            }
            if self.ended {
                return Ok(None);
            }
            self.make_room();
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                self.ended = true;
                self.buffer.extend_from_slice(b"\n");
            }
        }
    }

    /// Whether the stream has ended: a line that came then had no newline, and may have been cut.
    pub fn has_ended(&self) -> bool {
        self.ended
    }

    /// A frame that is whole in the buffer.
    fn buffered(&mut self) -> Option<Frame> {
        loop {
            let Some(newline) = memchr::memchr(b'\n', &self.buffer[self.searched..]) else {
                self.searched = self.buffer.len();
                if self.searched > self.limit {
                    self.discard();
                }
                return None;
            };
            let mut line = self.buffer.split_to(self.searched + newline + 1).freeze();
            self.searched = 0;
            if line.len() > READ {
                self.last_long = line.len();
            }
            line.truncate(line.len() - 1);
            if line.last() == Some(&b'\r') {
                line.truncate(line.len() - 1);
            }
            if let Some((head, before)) = self.too_long.take() {
                let tail = Bytes::copy_from_slice(&line[line.len().saturating_sub(ENDS)..]);
                return Some(Frame::TooLong { head, tail, length: before + line.len() as u64 });
            }
            if line.len() > self.limit {
                let head = Bytes::copy_from_slice(&line[..ENDS.min(line.len())]);
                let tail = Bytes::copy_from_slice(&line[line.len().saturating_sub(ENDS)..]);
                return Some(Frame::TooLong { head, tail, length: line.len() as u64 });
            }
            if std::mem::take(&mut self.fresh) && line.starts_with(BYTE_ORDER_MARK) {
                line.advance(BYTE_ORDER_MARK.len());
            }
            if !line.iter().all(u8::is_ascii_whitespace) {
                return Some(Frame::Line(line));
            }
        }
    }

    /// Drops what was read of an over-long line, but its head, and its last bytes for the tail.
    fn discard(&mut self) {
        let gone = self.buffer.len().saturating_sub(ENDS);
        let head = &self.buffer[..ENDS.min(gone)];
        let (_, length) = self.too_long.get_or_insert_with(|| (Bytes::copy_from_slice(head), 0));
        *length += gone as u64;
        let tail = BytesMut::from(&self.buffer[gone..]);
        self.buffer = tail;
        self.searched = self.buffer.len();
    }

    fn make_room(&mut self) {
        if self.too_long.is_some() && self.buffer.len() > KEEP {
            self.discard();
        }
        let unread = self.buffer.len();
        if self.buffer.capacity() - unread < READ / 8 {
            // Doubling, so that a long line is copied once on average; not at all when it is as long as the last.
            let expected = if unread >= READ / 2 { self.last_long.min(MAX_EXPECTED) + READ } else { 0 };
            // A fresh buffer, because `reserve` may copy lines that were given away long ago along with what is unread.
            let mut fresh = BytesMut::with_capacity((unread + READ.max(unread)).max(expected));
            fresh.extend_from_slice(&self.buffer);
            self.buffer = fresh;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;
    use std::pin::Pin;
    use std::task::{Context, Poll};

    /// Gives its pieces one read at a time.
    struct Pieces(VecDeque<Vec<u8>>);

    impl AsyncRead for Pieces {
        fn poll_read(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            out: &mut tokio::io::ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            if let Some(mut piece) = self.0.pop_front() {
                let rest = piece.split_off(piece.len().min(out.remaining()));
                out.put_slice(&piece);
                if !rest.is_empty() {
                    self.0.push_front(rest);
                }
            }
            Poll::Ready(Ok(()))
        }
    }

    fn frames(pieces: Vec<Vec<u8>>, limit: usize) -> Vec<Frame> {
        let mut reader = LineReader::new(Pieces(pieces.into()), limit);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let mut frames = Vec::new();
            while let Some(frame) = reader.next().await.unwrap() {
                frames.push(frame);
            }
            frames
        })
    }

    fn lines(frames: Vec<Frame>) -> Vec<Vec<u8>> {
        let line = |frame| match frame {
            Frame::Line(line) => line.to_vec(),
            Frame::TooLong { length, .. } => format!("too long: {length}").into_bytes(),
        };
        frames.into_iter().map(line).collect()
    }

    #[test]
    fn d010_bytes_one_at_a_time() {
        let text = "{\"a\":\"é漢😀\"}\r\n\n  \nlast";
        let seen = lines(frames(text.bytes().map(|b| vec![b]).collect(), 100));
        assert_eq!(seen, ["{\"a\":\"é漢😀\"}".as_bytes().to_vec(), b"last".to_vec()]);
    }

    #[test]
    fn who_floods_does_not_hold_up_others() {
        let mut reader = LineReader::new(std::io::Cursor::new(b"{}\n".repeat(10_000)), 100);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async move {
            let turns = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
            let counted = std::sync::Arc::clone(&turns);
            let other = tokio_util::task::TaskTracker::new().spawn(async move {
                loop {
                    counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    tokio::task::yield_now().await;
                }
            });
            while reader.next().await.unwrap().is_some() {}
            other.abort();
            assert!(turns.load(std::sync::atomic::Ordering::Relaxed) > 100);
        });
    }

    #[test]
    fn a_byte_order_mark_is_no_part_of_the_first_line() {
        let seen = lines(frames(vec!["\u{feff}{}\n\u{feff}x".as_bytes().to_vec()], 100));
        assert_eq!(seen, [b"{}".to_vec(), "\u{feff}x".as_bytes().to_vec()]);
    }

    #[test]
    fn d26_an_over_long_line_keeps_its_ends_and_costs_no_memory() {
        let mut long = b"{\"id\":7,".to_vec();
        long.extend(std::iter::repeat_n(b'x', 1_000_000));
        long.extend_from_slice(b",\"end\":1}\nnext\n");
        let chunks = long.chunks(10_000).map(<[u8]>::to_vec).collect();
        let frames = frames(chunks, 50_000);
        match &frames[..] {
            [Frame::TooLong { head, tail, length }, Frame::Line(next)] => {
                assert!(head.starts_with(b"{\"id\":7,") && head.len() <= ENDS);
                assert!(tail.ends_with(b",\"end\":1}"), "{:?}", &tail[tail.len() - 20..]);
                assert_eq!(*length, long.len() as u64 - 6);
                assert_eq!(&next[..], b"next");
            }
            other => panic!("{} frames", other.len()),
        }
    }

    proptest! {
        #[test]
        fn however_it_is_cut_the_lines_are_the_same(
            text in "([a-z]{0,30}\n){0,12}[a-z]{0,5}",
            cuts in prop::collection::vec(1usize..40, 1..20),
            limit in 1usize..40,
        ) {
            let mut rest = text.as_bytes();
            let mut pieces = Vec::new();
            for cut in cuts.iter().cycle() {
                if rest.is_empty() { break; }
                let (piece, after) = rest.split_at((*cut).min(rest.len()));
                pieces.push(piece.to_vec());
                rest = after;
            }
            let expected: Vec<_> = text.split('\n').filter(|l| !l.is_empty()).map(|l| {
                if l.len() > limit { format!("too long: {}", l.len()).into_bytes() } else { l.as_bytes().to_vec() }
            }).collect();
            prop_assert_eq!(lines(frames(pieces, limit)), expected);
        }
    }
}
