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

    /// The next task that ends; none when none is left. Safe to drop at any time.
    pub async fn next(&mut self) -> Option<Ended> {
        let (id, panicked) = match self.set.join_next_with_id().await? {
            Ok((id, ())) => (id, false),
            Err(error) => (error.id(), error.is_panic()),
        };
        let name = self.names.iter().find(|(named, _)| *named == id).map_or("a task", |(_, name)| name);
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
        assert_eq!(tasks.next().await, Some(Ended { name: "returns", panicked: false }));
        tasks.spawn("panics", async { panic!("a panic that a test wants") });
        assert_eq!(tasks.next().await, Some(Ended { name: "panics", panicked: true }));
        assert_eq!(Tasks::default().next().await, None);
    }
}
