#![no_main]

aetheris_fuzz::target!("http_body");
