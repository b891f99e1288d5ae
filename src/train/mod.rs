//! Stages, epochs, optimizer, scheduler, limits, history.
