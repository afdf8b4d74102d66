#![no_main]

aetheris_fuzz::target!("reducer");
