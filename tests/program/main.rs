//! The program as users start it: the real binary, alone and under real mpirun, on the reference cases' data.

#[path = "../common/mod.rs"]
mod common;
mod workplace;

mod append_stage;
mod bad_checkpoints;
mod bad_data;
mod bad_settings;
mod basis_cache;
mod bench;
mod check;
mod command_line;
mod devices;
mod dingo;
mod export;
mod failures;
mod inspect;
mod precision;
mod ranks;
mod resuming;
mod shipped_settings;
mod stages;
