#![no_main]

aetheris_fuzz::target!("agent_file");
