//! Trains Dingo's gravitational-wave posterior networks, data-parallel under MPI, one rank per GPU.
//!
//! The modules stand in the order of the layering: each may import only from those above it.

pub mod torch_ext;

pub mod gw;

pub mod settings;

pub mod spmd;

pub mod data;

pub mod nn;

pub mod posterior;

pub mod checkpoint;

pub mod train;

pub mod report;

pub mod jobs;

pub mod bench;

pub mod cli;

pub mod program;
