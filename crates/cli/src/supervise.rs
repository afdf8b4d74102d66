//! The tasks of a server process, each of which it needs: one that stops unexpectedly ends the process.

use std::future::Future;

use tokio::task::{Id, JoinSet};

/// Tasks with their names.
#[derive(Debug, Default)]
pub struct Tasks {
    names: Vec<(Id, &'static str)>,
    set: JoinSet<()>,
}

/// A task that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    /// Its name.
    pub name: &'static str,
    /// Whether it panicked.
    pub panicked: bool,
}

impl Tasks {
    /// Starts a task.
    pub fn spawn(&mut self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        let id = self.set.spawn(task).id();
        self.names.push((id, name));
    }

    /// Whether one of this name runs and no other.
    #[must_use]
    pub fn only(&self, name: &str) -> bool {
        matches!(self.names.as_slice(), [(_, last)] if *last == name)
    }

    /// The next task that ends; none when none is left. Safe to drop at any time.
    pub async fn next(&mut self) -> Option<Ended> {
        let (id, panicked) = match self.set.join_next_with_id().await? {
            Ok((id, ())) => (id, false),
            Err(error) => (error.id(), error.is_panic()),
        };
        let place = self.names.iter().position(|(named, _)| *named == id);
        let name = place.map_or("a task", |place| self.names.swap_remove(place).1);
        Some(Ended { name, panicked })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn whoever_ends_is_named_with_how() {
        let mut tasks = Tasks::default();
        tasks.spawn("stays", std::future::pending());
        tasks.spawn("returns", async {});
        assert!(!tasks.only("stays"));
        assert_eq!(tasks.next().await, Some(Ended { name: "returns", panicked: false }));
        assert!(tasks.only("stays") && !tasks.only("returns"));
        tasks.spawn("panics", async { panic!("a panic that a test wants") });
        assert_eq!(tasks.next().await, Some(Ended { name: "panics", panicked: true }));
        assert_eq!(Tasks::default().next().await, None);
    }
}
