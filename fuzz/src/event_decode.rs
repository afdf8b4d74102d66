#![no_main]

aetheris_fuzz::target!("event_decode");
