use super::log::{BookingLog, Wish, read};
use crate::commands::outside::Folder;

fn wish(key: &str) -> Wish {
    Wish {
        attempt: "1".to_owned(),
        cents: 100,
        fence: "1.1".to_owned(),
        idempotency_key: key.to_owned(),
        order: "A-1".to_owned(),
    }
}

#[test]
fn a_key_is_booked_as_often_as_it_is_sent_and_the_log_goes_on_after_a_restart() {
    let folder = Folder::make_in(&std::env::temp_dir(), "aetheris-payments").unwrap();
    let path = folder.path().join("payments.log");
    let mut log = BookingLog::open(&path).unwrap();
    log.book(wish("k")).unwrap();
    log.book(wish("k")).unwrap();
    assert_eq!(log.by_key("k").unwrap().refund_id, "rf-1");
    assert!(log.by_key("another").is_none());
    drop(log);

    let mut log = BookingLog::open(&path).unwrap();
    assert_eq!(log.book(wish("another")).unwrap().refund_id, "rf-3");
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
