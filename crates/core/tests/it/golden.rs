//! Golden histories: what earlier builds wrote is read, chained and folded for ever as it was then. `tests/golden` has one
//! history a file, as its events stood in the store, and what the build that wrote them made of them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use aetheris_core::chain::Header;
use aetheris_core::event::{Recorded, codec};
use aetheris_core::hash::Hash;
use aetheris_core::id::{EventId, JobId};
use aetheris_core::lease::Fence;
use aetheris_core::state::JobState;
use aetheris_core::time::Timestamp;
use serde::Deserialize;

/// An event as a store keeps it.
#[derive(Deserialize)]
struct Row {
    at: i64,
    epoch: u32,
    generation: u32,
    hash: String,
    id: String,
    kind: u8,
    payload: String,
    schema_version: u16,
    seq: u64,
}

/// What the build that wrote a history showed of it.
#[derive(Debug, PartialEq, Eq, Deserialize)]
struct Shown {
    seq: u64,
    status: String,
    /// Status and tries by node.
    steps: BTreeMap<String, (String, u32)>,
}

#[derive(Deserialize)]
struct Golden {
    events: Vec<Row>,
    job: String,
    shown: Shown,
}

fn files() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let builds = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> =
        builds.flat_map(|build| std::fs::read_dir(build).unwrap().map(|entry| entry.unwrap().path())).collect();
    files.sort();
    files
}

fn hex(text: &str) -> Vec<u8> {
    (0..text.len() / 2).map(|place| u8::from_str_radix(&text[2 * place..2 * place + 2], 16).unwrap()).collect()
}

impl Golden {
    fn read(file: &Path) -> Self {
        serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap()
    }

    fn id(&self) -> JobId {
        JobId::from_slice(&hex(&self.job)).unwrap()
    }

    /// Its events, decoded; their chain is that of the bytes.
    fn recorded(&self) -> Vec<Recorded> {
        let mut previous = Hash::ZERO;
        let decoded = self.events.iter().map(|row| {
            let payload = row.payload.as_bytes();
            let event = codec::decode(row.kind, row.schema_version, payload)
                .map_err(|error| format!("event {}: {error}", row.seq))
                .unwrap();
            let header = Header {
                job: self.id(),
                seq: row.seq,
                id: EventId::from_slice(&hex(&row.id)).unwrap(),
                kind: row.kind,
                schema_version: row.schema_version,
                fence: Fence { generation: row.generation, epoch: row.epoch },
                at: Timestamp::from_micros(row.at),
                payload_hash: Hash::of(payload),
            };
            previous = header.chain(&previous);
            assert_eq!(previous.as_bytes().as_slice(), hex(&row.hash), "the chain at event {}", row.seq);
            Recorded { seq: row.seq, id: header.id, fence: header.fence, at: header.at, hash: previous, event }
        });
        decoded.collect()
    }
}

fn shown(state: &JobState) -> Shown {
    let steps = state.steps.iter().map(|(node, step)| {
        let status = serde_json::to_value(step.status).unwrap();
        (node.to_string(), (status.as_str().unwrap().to_owned(), step.tries))
    });
    Shown { seq: state.seq, status: state.status.as_str().to_owned(), steps: steps.collect() }
}

#[test]
fn every_history_that_was_ever_written_is_folded_as_it_was_then() {
    let files = files();
    assert!(files.len() >= 143, "golden histories are never removed: {} are left", files.len());
    for file in files {
        let golden = Golden::read(&file);
        let state =
            JobState::fold(golden.id(), &golden.recorded()).map_err(|e| format!("{}: {e}", file.display())).unwrap();
        assert_eq!(shown(&state), golden.shown, "{}", file.display());
    }
}

/// The form of a checkpoint belongs to a version: one that changes under the same number would be read wrongly.
#[test]
fn the_form_of_a_checkpoint_has_not_changed_under_its_version() {
    /// The version, and by build the hash of what its histories fold to in its form. Later builds add histories.
    const KNOWN: (u16, [(&str, &str); 3]) = (
        11,
        [
            ("kinds", "3440e8641cccf6da00f2801a6d844917c22d236f355221d22e7f3ab5179704f3"),
            ("kernel", "cd19e60443205946fb359108c40927021b1a4152e0629a6d3d46f8aed9f88509"),
            ("repairs", "d24bd32a4ad3a372c51564f7f28edb2e221316a676ad6e63f27aa5b6372811f7"),
        ],
    );
    let folded = |name: &str| {
        let mut states = Vec::new();
        for file in files() {
            if file.parent().is_some_and(|build| build.ends_with(name)) {
                let golden = Golden::read(&file);
                states.extend_from_slice(JobState::fold(golden.id(), &golden.recorded()).unwrap().hash().as_bytes());
            }
        }
        Hash::of(&states).to_string()
    };
    let found = KNOWN.1.map(|(name, _)| (name, folded(name)));
    assert_eq!(
        (JobState::VERSION, found.each_ref().map(|(name, hash)| (*name, hash.as_str()))),
        KNOWN,
        "the form of a folded state has changed: raise JobState::VERSION and write both down here"
    );
}
