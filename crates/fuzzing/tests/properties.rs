//! The targets without a fuzzer: over kept inputs that were changed at random, and over addresses.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on ends")]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

use aetheris_adapters::Guard;
use aetheris_fuzzing::texts::{self, is_public};
use aetheris_fuzzing::{TARGETS, Target, reducer, router};
use proptest::prelude::*;
use proptest::sample::{Index, select};
use reqwest::Url;

const CASES: u32 = 20_000;

fn corpus(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let mut paths: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.iter().map(|path| std::fs::read(path).unwrap()).collect()
}

/// One change: bytes out, bytes twice, other bytes in.
type Change = (u8, Index, u8, Vec<u8>);

fn change() -> impl Strategy<Value = Change> {
    let words: Vec<&'static [u8]> = vec![
        b"{{",
        b"}}",
        b"{%",
        b"\"",
        b"'",
        b"\n",
        b"\n  ",
        b"[",
        b"]",
        b"{",
        b"}",
        b": ",
        b", ",
        b"- ",
        b"&a",
        b"*a",
        b"null",
        b"1e999",
        b"-0.0",
        b"18446744073709551616",
        b"\\u0000",
        b"\xff",
        b"not ",
        b" | ",
        b"%%",
        b"RUN",
        b"..",
    ];
    let new = prop_oneof![select(words).prop_map(<[u8]>::to_vec), proptest::collection::vec(any::<u8>(), 0..5)];
    (0u8..4, any::<Index>(), 1u8..40, new)
}

fn changed(mut bytes: Vec<u8>, changes: &[Change]) -> Vec<u8> {
    for (kind, at, length, new) in changes {
        let start = at.index(bytes.len() + 1);
        let end = (start + usize::from(*length)).min(bytes.len());
        let part = bytes[start..end].to_vec();
        match kind {
            0 => drop(bytes.drain(start..end)),
            1 => drop(bytes.splice(start..start, part)),
            2 => drop(bytes.splice(start..start, new.iter().copied())),
            _ => drop(bytes.splice(start..end, new.iter().copied())),
        }
    }
    bytes
}

fn holds(name: &str, target: Target, cases: u32) {
    assert!(TARGETS.iter().any(|(known, _)| *known == name));
    let kept = corpus(name);
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(cases));
    let input = (select(kept), proptest::collection::vec(change(), 1..5));
    let ran = runner.run(&input, |(bytes, changes)| {
        target(&changed(bytes, &changes));
        Ok(())
    });
    assert!(ran.is_ok(), "{name}: {}", ran.unwrap_err());
}

#[test]
fn addresses_as_urls() {
    holds("address", texts::address, CASES);
}

#[test]
fn agent_files() {
    holds("agent_file", texts::agent_file, CASES / 10);
}

#[test]
fn stored_events() {
    holds("event_decode", texts::event_decode, CASES);
}

#[test]
fn values() {
    holds("json", texts::json, CASES);
}

#[test]
fn sequences_of_events() {
    holds("reducer", reducer::reducer, CASES / 4);
}

#[test]
fn headers_and_witnesses() {
    holds("retry_after", texts::retry_after, CASES);
    holds("witness", texts::witness, CASES);
}

#[test]
fn signals() {
    holds("signal", texts::signal, CASES / 2);
}

#[test]
fn templates() {
    holds("template", texts::template, CASES / 2);
}

#[test]
fn requests() {
    holds("router", router::router, CASES / 200);
    holds("http_body", router::http_body, CASES / 200);
}

/// IPv6 addresses, mostly from where something is decided.
fn v6() -> impl Strategy<Value = Ipv6Addr> {
    let heads: Vec<u128> = vec![
        0,
        0xffff << 32,
        0x64_ff9b << 96,
        0x0064_ff9b_0001 << 80,
        0x2001 << 112,
        0x2001_0200 << 96,
        0x2001_0db8 << 96,
        0x2002 << 112,
        0x3fff << 112,
        0x3fff_1000 << 96,
        0x2000 << 112,
        0x4000 << 112,
        0xfc00 << 112,
        0xfe80 << 112,
        0xff00 << 112,
    ];
    let tail = prop_oneof![any::<u32>().prop_map(u128::from), any::<u128>(), Just(0), Just(1)];
    (select(heads), 0u32..100, tail)
        .prop_map(|(head, keep, tail)| Ipv6Addr::from_bits(head | tail.checked_shr(keep).unwrap_or(0)))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(CASES))]

    /// The guard lets through what the plain rules call public, and nothing else.
    #[test]
    fn every_address_is_judged_by_the_rules(four in any::<u32>(), six in v6()) {
        for address in [IpAddr::V4(Ipv4Addr::from_bits(four)), IpAddr::V6(six)] {
            prop_assert_eq!(Guard::default().check(address).is_ok(), is_public(address), "{}", address);
        }
    }

    /// However an IPv4 address is written, it is judged as itself.
    #[test]
    fn disguises_change_nothing(bits in prop_oneof![any::<u32>(), select(vec![0x7f00_0001, 0xa9fe_a9fe, 0x0a00_0001, 0xc0a8_0001, 0x0808_0808])]) {
        let plain = Ipv4Addr::from_bits(bits);
        let [a, b, c, d] = plain.octets();
        let rest = bits & 0xff_ffff;
        let forms = [
            format!("{plain}"), format!("{bits}"), format!("{bits:#x}"), format!("0{bits:o}"), format!("{a}.{rest}"),
            format!("{a:#x}.{b:#x}.{c:#x}.{d:#x}"), format!("0{a:o}.{b}.{c:#x}.{d}"), format!("{a}.{b}.{}", u32::from(c) << 8 | u32::from(d)),
            format!("[::ffff:{plain}]"), format!("[64:ff9b::{plain}]"), format!("{plain}."),
        ];
        for form in forms {
            let url = Url::parse(&format!("http://{form}/")).unwrap();
            prop_assert_eq!(Guard::default().check_url(&url).is_ok(), is_public(IpAddr::V4(plain)), "{}", url);
        }
    }
}
