#![no_main]

aetheris_fuzz::target!("retry_after");
