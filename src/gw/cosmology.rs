//! Distances of the Planck15 cosmology (radiation and massive neutrinos included).
