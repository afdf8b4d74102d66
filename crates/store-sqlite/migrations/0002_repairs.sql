-- Checkpoints. A state is kept in the form of its author's build: one of another version is not read.
ALTER TABLE checkpoints ADD COLUMN version INTEGER NOT NULL DEFAULT 1;
