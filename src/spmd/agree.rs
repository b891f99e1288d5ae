//! Errors that concern all ranks: agreed upon after a phase, told once, and the end of the program.

use super::error::Result;
use super::failure::{self, GENERAL_FAILURE};
use super::world::World;

/// An error that all ranks know of, so that they can end together.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}")]
pub struct RankFailure {
    /// The lowest rank that failed.
    pub rank: usize,
    /// The exit status that its error asks for.
    pub status: i32,
    /// What went wrong there; it names rank and host unless all ranks failed.
    pub message: String,
}

impl World {
    /// Ends a phase that every rank did on its own. If it failed on any rank, all ranks get the error of the lowest one that
    /// failed, so that none goes on to wait for the others, and all end with the same status.
    pub fn agree<T>(&self, result: anyhow::Result<T>) -> anyhow::Result<T> {
        if self.size == 1 {
            return result;
        }
        let failed = self.gather(u8::from(result.is_err()))?;
        let Some(rank) = failed.iter().position(|&failed| failed > 0) else {
            return result;
        };
        let error = result.err();
        let everywhere = failed.iter().all(|&failed| failed > 0);
        let message = error.as_ref().map_or_else(String::new, |error| match everywhere {
            true => format!("{error:#}"),
            false => format!("{}: {error:#}", self.who()),
        });
        let message = self.broadcast_bytes(message.into_bytes(), rank)?;
        let mut status = [error.as_ref().map_or(0, |error| i64::from(self.status_of(error)))];
        self.broadcast(&mut status, rank)?;
        let status = i32::try_from(status[0]).unwrap_or(GENERAL_FAILURE);
        Err(RankFailure {
            rank,
            status,
            message: String::from_utf8_lossy(&message).into_owned(),
        }
        .into())
    }

    /// Ends the program; `main` returns what this returns. A normal result and an agreed failure pass a barrier, so that no
    /// rank is killed by another one's exit; any other error ends the job at once, since the other ranks do not know of it.
    pub fn end(self, result: anyhow::Result<i32>) -> i32 {
        let error = match result {
            Ok(status) => return self.leave(status),
            Err(error) => error,
        };
        let status = self.status_of(&error);
        let agreed = error.downcast_ref::<RankFailure>();
        if self.size == 1 {
            eprintln!("Error: {error:#}");
        } else if let Some(failure) = agreed {
            if failure.rank == self.rank {
                eprintln!("Error: {failure}");
            }
        } else {
            eprintln!("Error: {}: {error:#}", self.who());
            failure::abort_job(status);
        }
        self.leave(status)
    }

    /// The exit status for an error: an agreed one brings its own.
    fn status_of(&self, error: &anyhow::Error) -> i32 {
        error
            .downcast_ref::<RankFailure>()
            .map_or_else(|| (self.exit_status)(error), |failure| failure.status)
    }

    fn leave(self, status: i32) -> i32 {
        let who = self.who();
        let ended: Result<()> = self.finalize();
        if let Err(error) = ended {
            eprintln!("Error: {who}: {error}");
            failure::abort_job(GENERAL_FAILURE);
        }
        status
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alone_an_error_stays_what_it_was() {
        let world = World::alone(|error| if error.is::<std::fmt::Error>() { 2 } else { 1 });
        assert_eq!(world.agree(Ok(7)).unwrap(), 7);
        let error = world.agree::<()>(Err(std::fmt::Error.into())).unwrap_err();
        assert!(error.is::<std::fmt::Error>());
        assert_eq!(world.end(Err(error)), 2);
    }
}
