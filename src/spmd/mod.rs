//! The world of ranks: bootstrap, collectives, gradient reduction. Knows nothing of models or data.
