//! The splitter against its own promise (bytes unchanged) and against another implementation.

use futures_util::StreamExt;
use proptest::prelude::*;
use sse_stream::SseStream;

use super::*;

/// Pushes `input` in pieces cut at `cuts`; returns the events and the rest.
fn split(input: &[u8], cuts: &[usize]) -> (Vec<Vec<u8>>, Vec<u8>, bool) {
    let mut splitter = Splitter::default();
    let mut events = Vec::new();
    let mut start = 0;
    let ends = cuts.iter().copied().chain([input.len()]);
    for end in ends {
        let batch = splitter.push(&Bytes::copy_from_slice(&input[start..end]));
        let mut covered = 0;
        for range in &batch.events {
            assert_eq!(range.start, covered);
            covered = range.end;
            events.push(batch.bytes[range.clone()].to_vec());
        }
        assert_eq!(covered, batch.bytes.len());
        if batch.fault.is_some() {
            return (events, splitter.into_rest().to_vec(), true);
        }
        start = end;
    }
    (events, splitter.into_rest().to_vec(), false)
}

fn payloads(events: &[Vec<u8>]) -> Vec<String> {
    events
        .iter()
        .filter_map(|event| data_of(event))
        .map(|data| String::from_utf8(data.to_vec()).unwrap())
        .collect()
}

/// The payloads as another implementation reads them.
fn oracle(input: &[u8]) -> Vec<String> {
    let chunks = futures_util::stream::iter([Ok::<_, std::io::Error>(Bytes::copy_from_slice(input))]);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let mut stream = SseStream::from_bytes_stream(chunks);
        let mut found = Vec::new();
        while let Some(event) = stream.next().await {
            found.extend(event.unwrap().data);
        }
        found
    })
}

fn line() -> impl Strategy<Value = String> {
    prop_oneof![
        6 => "data: [a-zé€😀 :{}\"]{0,12}",
        2 => "data:[a-z]{1,8}",
        1 => ": ?[a-zé]{0,8}",
        1 => "event: [a-z]{1,5}",
        1 => "id: [0-9]{1,3}",
        1 => "retry: [0-9]{1,3}",
    ]
}

/// A stream of whole events with one kind of line end; no field but `data` twice in an event.
fn stream(ends: &'static [&'static str]) -> impl Strategy<Value = Vec<u8>> {
    let event = prop::collection::vec(line(), 1..5).prop_map(|lines| {
        let mut seen = Vec::new();
        lines
            .into_iter()
            .filter(|line| {
                let name = line.split(':').next().unwrap_or_default().to_owned();
                let fresh = name == "data" || name.is_empty() || !seen.contains(&name);
                seen.push(name);
                fresh
            })
            .collect::<Vec<_>>()
    });
    (prop::collection::vec(event, 0..8), prop::sample::select(ends)).prop_map(|(events, end)| {
        let mut bytes = Vec::new();
        for event in events {
            for line in event {
                bytes.extend_from_slice(line.as_bytes());
                bytes.extend_from_slice(end.as_bytes());
            }
            bytes.extend_from_slice(end.as_bytes());
        }
        bytes
    })
}

fn cuts_of(length: usize, raw: &[prop::sample::Index]) -> Vec<usize> {
    let mut cuts: Vec<usize> = raw.iter().map(|index| index.index(length + 1)).collect();
    cuts.sort_unstable();
    cuts
}

proptest! {
    // Fault matrix 71
    #[test]
    fn any_bytes_in_any_chunks_come_out_unchanged(
        input in prop::collection::vec(prop::sample::select(b"\r\n:da t\xEF\xBB\xBF\x00".to_vec()), 0..200),
        raw in prop::collection::vec(any::<prop::sample::Index>(), 0..20),
    ) {
        let (events, rest, fault) = split(&input, &cuts_of(input.len(), &raw));
        let mut joined = events.concat();
        joined.extend_from_slice(&rest);
        prop_assert!(!fault);
        prop_assert_eq!(joined, input);
    }

    // Fault matrix 71
    #[test]
    fn payloads_are_those_another_implementation_reads(
        input in stream(&["\n", "\r\n"]),
        raw in prop::collection::vec(any::<prop::sample::Index>(), 0..20),
    ) {
        let (events, rest, _) = split(&input, &cuts_of(input.len(), &raw));
        prop_assert_eq!(payloads(&events), oracle(&input));
        // A `\r\n` cut in two leaves its second half.
        prop_assert!(rest.is_empty() || rest == b"\n");
    }

    // Fault matrix 71
    #[test]
    fn payloads_do_not_depend_on_the_cuts(
        input in stream(&["\n", "\r\n", "\r"]),
        raw in prop::collection::vec(any::<prop::sample::Index>(), 0..40),
    ) {
        let (whole, _, _) = split(&input, &[]);
        let (cut, _, _) = split(&input, &cuts_of(input.len(), &raw));
        let single: Vec<usize> = (1..input.len()).collect();
        let (bytewise, _, _) = split(&input, &single);
        prop_assert_eq!(payloads(&whole), payloads(&cut));
        prop_assert_eq!(payloads(&whole), payloads(&bytewise));
    }
}

// Fault matrix 71
#[test]
fn marks_comments_and_other_fields_are_not_data() {
    for (text, data) in [
        ("\u{feff}data: x\n\n", Some("x")),
        (": comment\n\n", None),
        ("event: ping\nid: 7\nretry: 10\n\n", None),
        ("data\n\n", Some("")),
        ("data:\n\n", Some("")),
        ("data:  x\n\n", Some(" x")),
        ("database: x\n\n", None),
        ("data: a\r\ndata: b\r\n\r\n", Some("a\nb")),
        ("data: a\rdata: b\r\r", Some("a\nb")),
        ("event: error\ndata: {}\n\n", Some("{}")),
    ] {
        let found = data_of(text.as_bytes()).map(|data| String::from_utf8(data.to_vec()).unwrap());
        assert_eq!(found.as_deref(), data, "{text:?}");
    }
}

// Fault matrix 70
#[test]
fn a_line_of_the_largest_size_passes_and_one_byte_more_does_not() {
    for (length, fault) in [
        (64 * 1024, false),
        (MAX_LINE_BYTES, false),
        (MAX_LINE_BYTES + 1, true),
    ] {
        let mut input = b"data: ".to_vec();
        input.resize(length, b'x');
        input.extend_from_slice(b"\n\n");
        let cuts: Vec<usize> = (1..input.len()).step_by(4096).collect();
        let (events, _, broken) = split(&input, &cuts);
        assert_eq!((events.len(), broken), (usize::from(!fault), fault), "{length}");
    }
}

// Fault matrix 70
#[test]
fn endless_lines_and_endless_events_are_cut_with_little_held() {
    for piece in ["x".repeat(4096), "data: x\n".repeat(512)] {
        let mut splitter = Splitter::default();
        let chunk = Bytes::from(piece);
        let pushes = (0..100_000)
            .take_while(|_| splitter.push(&chunk).fault.is_none())
            .count();
        assert!(pushes < 300 && splitter.held() < 2 * MAX_EVENT_BYTES, "{pushes}");
    }
}

#[test]
fn events_before_a_fault_are_still_delivered() {
    let mut splitter = Splitter::default();
    let mut input = b"data: a\n\n".to_vec();
    input.resize(MAX_EVENT_BYTES * 2, b'x');
    let batch = splitter.push(&Bytes::from(input));
    assert_eq!(
        (batch.bytes.as_ref(), batch.fault),
        (b"data: a\n\n".as_slice(), Some(TooLarge))
    );
}
