use super::log::{BookingLog, Wish, read};
use crate::commands::process_control::Folder;

fn wish(key: &str) -> Wish {
    Wish {
        attempt: "1".to_owned(),
        cents: 100,
        fence: "1.1".to_owned(),
        idempotency_key: key.to_owned(),
        order: "A-1".to_owned(),
        permit: "1.1".to_owned(),
    }
}

#[test]
fn a_key_is_booked_as_often_as_it_is_sent_and_the_log_goes_on_after_a_restart() {
    let folder = Folder::make_in(&std::env::temp_dir(), "aetheris-payments").unwrap();
    let path = folder.path().join("payments.log");
    let mut log = BookingLog::open(&path).unwrap();
    log.book(wish("k")).unwrap();
    log.book(wish("k")).unwrap();
    assert_eq!(log.look_and_refuse("k", "1.1").unwrap().unwrap().refund_id, "rf-1");
    drop(log);

    let mut log = BookingLog::open(&path).unwrap();
    assert_eq!(log.book(wish("another")).unwrap().unwrap().refund_id, "rf-3");
    let keys: Vec<String> = read(&path).unwrap().into_iter().map(|booking| booking.idempotency_key).collect();
    assert_eq!(keys, ["k", "k", "another"]);
}

#[test]
fn a_log_with_a_broken_line_is_not_read_as_shorter() {
    let folder = Folder::make_in(&std::env::temp_dir(), "aetheris-payments").unwrap();
    let path = folder.path().join("payments.log");
    BookingLog::open(&path).unwrap().book(wish("k")).unwrap();
    let mut text = std::fs::read_to_string(&path).unwrap();
    text.push_str("{\"kind\":\"boo");
    std::fs::write(&path, text).unwrap();
    assert!(read(&path).is_err());
}

#[test]
fn what_is_said_not_to_have_happened_is_refused_from_then_on_and_a_higher_permit_is_not() {
    let folder = Folder::make_in(&std::env::temp_dir(), "aetheris-payments").unwrap();
    let path = folder.path().join("payments.log");
    let mut log = BookingLog::open(&path).unwrap();
    assert!(log.look_and_refuse("k", "1.2").unwrap().is_none());
    drop(log);

    let mut log = BookingLog::open(&path).unwrap();
    let book = |log: &mut BookingLog, permit: &str| {
        let wish = Wish { permit: permit.to_owned(), ..wish("k") };
        log.book(wish).unwrap().is_some()
    };
    for refused in ["1.1", "1.2", "0.9", "no permit"] {
        assert!(!book(&mut log, refused), "{refused}");
    }
    assert!(log.book(wish("another")).unwrap().is_some());
    for accepted in ["1.3", "1.10", "2.1"] {
        assert!(book(&mut log, accepted), "{accepted}");
    }
    assert!(log.look_and_refuse("k", "1.3").unwrap().is_some());
}
