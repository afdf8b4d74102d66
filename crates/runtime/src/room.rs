//! Bounds that many share: places, or bytes of memory.

use std::sync::Arc;

use aetheris_core::limits;
use aetheris_core::time::Span;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::admission::{Admission, Caller};

/// A bound that many share.
#[derive(Debug, Clone)]
pub struct Room {
    all: u32,
    left: Arc<Semaphore>,
}

/// Room for large jobs that one process writes to from outside a run. What the process owes has memory and places of its
/// own.
#[derive(Debug, Clone)]
pub struct Loads {
    pub(crate) admission: Admission,
    asked: Room,
    owed: Room,
}

impl Loads {
    /// Memory of jobs that wait until they are written.
    pub(crate) fn memory(&self, caller: Caller) -> &Room {
        if caller.is_process() { &self.owed } else { &self.asked }
    }
}

impl Default for Loads {
    fn default() -> Self {
        let memory = || Room::new(limits::JOBS_WRITTEN_BYTES_MAX);
        Self { admission: Admission::default(), asked: memory(), owed: memory() }
    }
}

/// A part of a room, which is given back when this is dropped.
#[derive(Debug)]
pub struct Held(Option<OwnedSemaphorePermit>);

impl Room {
    /// For so many places, or bytes.
    #[must_use]
    pub fn new(size: usize) -> Self {
        let all = u32::try_from(size).unwrap_or(u32::MAX);
        Self { all, left: Arc::new(Semaphore::new(all as usize)) }
    }

    /// One, if there is one now.
    #[must_use]
    pub fn try_one(&self) -> Option<OwnedSemaphorePermit> {
        self.try_take(1)
    }

    /// So many, if there are so many now; all of them where more are wanted than there are.
    #[must_use]
    pub fn try_take(&self, size: usize) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.left).try_acquire_many_owned(self.part(size)).ok()
    }

    /// So many, after at most this time; all of them where more are wanted than there are.
    pub async fn take(&self, size: usize, patience: Span) -> Option<OwnedSemaphorePermit> {
        tokio::select! {
            biased;
            taken = Arc::clone(&self.left).acquire_many_owned(self.part(size)) => taken.ok(),
            () = tokio::time::sleep(patience.to_std()) => None,
        }
    }

    fn part(&self, size: usize) -> u32 {
        u32::try_from(size).unwrap_or(u32::MAX).min(self.all)
    }
}

/// Something made of less that takes memory until a write of it has been answered, within the bound of a room. What is
/// small counts for nothing. Where there is no room, what was made is let go, and made again when there is: whoever waits
/// holds nothing. `None` if there was no room for as long as that, or what is made has grown each time.
///
/// # Errors
/// It cannot be made.
pub async fn made_within<T, E, Making>(
    room: &Room,
    patience: Span,
    mut make: impl FnMut() -> Making,
    takes: impl Fn(&T) -> usize,
) -> Result<Option<(T, Held)>, E>
where
    Making: Future<Output = Result<T, E>>,
{
    let (mut held, mut bytes) = (Held(None), limits::WRITTEN_BYTES_FREE);
    for _ in 0..limits::CONFLICT_RETRIES_MAX {
        let made = make().await?;
        let wanted = takes(&made);
        if wanted <= bytes {
            return Ok(Some((made, held)));
        }
        held.0 = None;
        if let Some(part) = room.try_take(wanted) {
            return Ok(Some((made, Held(Some(part)))));
        }
        drop(made);
        let Some(part) = room.take(wanted, patience).await else { return Ok(None) };
        // A job may have grown meanwhile; then it waits for more.
        (held, bytes) = (Held(Some(part)), wanted);
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    const FREE: usize = limits::WRITTEN_BYTES_FREE;

    async fn made(room: &Room, sizes: &[usize]) -> Option<(usize, Held)> {
        let made = Cell::new(0);
        let make = || {
            let size = sizes[made.get().min(sizes.len() - 1)];
            made.set(made.get() + 1);
            std::future::ready(Ok::<_, ()>(size))
        };
        let (_, held) = made_within(room, limits::ANSWER_PATIENCE, make, |size| *size).await.unwrap()?;
        Some((made.get(), held))
    }

    #[test]
    fn what_a_process_owes_does_not_wait_behind_its_clients() {
        let loads = Loads::default();
        let _all = loads.memory(Caller::Client).try_take(usize::MAX).unwrap();
        let free = |caller| loads.memory(caller).try_one().is_some();
        assert!(free(Caller::Sweep) && free(Caller::Process) && !free(Caller::Operator) && !free(Caller::Client));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_small_counts_for_nothing_and_the_rest_by_its_bytes() {
        let room = Room::new(10 * FREE);
        let small = made(&room, &[FREE]).await.unwrap();
        assert_eq!(room.left.available_permits(), 10 * FREE);
        let large = made(&room, &[FREE + 1]).await.unwrap();
        assert_eq!((large.0, room.left.available_permits()), (1, 9 * FREE - 1));
        drop((small, large));
        assert_eq!(room.left.available_permits(), 10 * FREE);
        // More than there is: it has the room to itself.
        let all = made(&room, &[20 * FREE]).await.unwrap();
        assert_eq!(room.left.available_permits(), 0);
        assert!(made(&room, &[2 * FREE]).await.is_none());
        assert!(made(&room, &[FREE]).await.is_some());
        drop(all);
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_for_room_holds_nothing_and_makes_it_again() {
        let room = Room::new(10 * FREE);
        let first = made(&room, &[8 * FREE]).await.unwrap();
        let waiting = made(&room, &[3 * FREE]);
        let freed = async {
            tokio::task::yield_now().await;
            drop(first);
        };
        let (second, ()) = tokio::join!(waiting, freed);
        let (times, held) = second.unwrap();
        assert_eq!((times, room.left.available_permits()), (2, 7 * FREE));
        drop(held);
        assert_eq!(room.left.available_permits(), 10 * FREE);
    }

    #[tokio::test(start_paused = true)]
    async fn what_has_grown_while_it_waited_waits_for_more() {
        let room = Room::new(10 * FREE);
        let first = made(&room, &[9 * FREE]).await.unwrap();
        let waiting = made(&room, &[2 * FREE, 5 * FREE]);
        let freed = async {
            tokio::task::yield_now().await;
            drop(first);
        };
        let (second, ()) = tokio::join!(waiting, freed);
        let (times, held) = second.unwrap();
        assert_eq!((times, room.left.available_permits()), (2, 5 * FREE));
        drop(held);
    }

    /// Each gives back what it has waited for before it waits for more: two that kept it would wait for each other.
    #[tokio::test(start_paused = true)]
    async fn two_that_have_grown_while_they_waited_do_not_wait_for_each_other() {
        let room = Room::new(10 * FREE);
        let first = made(&room, &[9 * FREE]).await.unwrap();
        let grows = async || made(&room, &[3 * FREE, 6 * FREE]).await.map(|(times, _held)| times);
        let freed = async {
            tokio::task::yield_now().await;
            drop(first);
        };
        let started = tokio::time::Instant::now();
        let (second, third, ()) = tokio::join!(grows(), grows(), freed);
        assert_eq!((second, third, started.elapsed()), (Some(2), Some(2), std::time::Duration::ZERO));
        assert_eq!(room.left.available_permits(), 10 * FREE);
    }
}
