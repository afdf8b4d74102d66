//! What goes on beside a run and asks what is told: followers of jobs, readers that stay at a server of their own, and at
//! the end the command line, the API, and copies of the database: backups, and one that somebody has changed.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use aetheris_store::system::{Clock, SystemClock};
use anyhow::Result;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::backups::Backups;
use super::commands::Commands;
use super::dice::Dice;
use super::faults::{LEASE, World};
use super::nodes::{self, Node, Order, Role};
use super::oracle::Oracle;
use super::poison;
use super::proxy::{Proxy, Spoil};
use super::readers::Readers;
use super::ready::Ready;
use super::stored::Stored;
use super::streams::Followers;
use super::{tampered, told};
use crate::drive::process::Launch;

/// How often it is looked whether the disk is full.
const LOOK: Duration = Duration::from_millis(20);

/// Everything that goes on beside a run.
pub struct Beside {
    backups: Arc<Backups>,
    commands: Commands,
    followers: Arc<Followers>,
    /// The server whom no hand of the nemesis touches: only the disk that it shares.
    calm: Arc<Node>,
    oracles: Vec<Oracle>,
    readers: Arc<Readers>,
    ready: Ready,
    /// Whether there is the time for readers that stay.
    stays: bool,
    stop: CancellationToken,
    tasks: JoinSet<()>,
}

impl Beside {
    /// Starts all of it for a run that is hurt for so long.
    ///
    /// # Errors
    /// The server does not get ready.
    pub async fn start(
        world: &Arc<World>,
        calm: Launch,
        (commands, scratch): (Commands, &Path),
        (load, dice): (Duration, Dice),
    ) -> Result<Self> {
        let wires = world.api.beside("streams").await?;
        let followers =
            Followers::new(wires.addr, Arc::clone(&world.clients), commands.clone(), world.backend.database())?;
        let (url, address) = watch::channel(SocketAddr::from(([127, 0, 0, 1], 9)));
        let calm = Node::new("calm".to_owned(), Role::Api, calm, Some(url));
        calm.start(&Order::default()).await?;
        let (stop, readers, mut tasks) = (CancellationToken::new(), Arc::new(Readers::default()), JoinSet::new());
        tasks.spawn(nodes::keep(vec![Arc::clone(&calm)], world.log.clone(), stop.clone(), world.problems.clone()));
        tasks.spawn(Arc::clone(&followers).run(stop.clone()));
        let backups = Backups::new(scratch.join("backups"), scratch.join("config.yaml"), commands.clone())?;
        tasks.spawn(Arc::clone(&backups).run(Arc::clone(world), stop.clone()));
        let ready = Ready::new(address.clone())?;
        let until = SystemClock.boot() + load;
        tasks.spawn(spoil(wires, dice, until));
        tasks.spawn(while_full(Arc::clone(world), ready.clone(), stop.clone()));
        let stays = load > Readers::wave();
        if stays {
            let (readers, problems) = (Arc::clone(&readers), world.problems.clone());
            let database = world.backend.database();
            tasks.spawn(async move {
                if let Err(error) = readers.run(database, address, until).await {
                    problems.add(format!("readers: {error:#}"));
                }
            });
        }
        Ok(Self { backups, commands, followers, calm, oracles: Vec::new(), readers, ready, stays, stop, tasks })
    }

    /// Everything is at rest, and the servers are there: asks what is told. Then nothing goes on any more.
    ///
    /// # Errors
    /// A command cannot be run, or the store not be read.
    pub async fn ask(&mut self, world: &World) -> Result<()> {
        let stored = Stored::open(&world.backend.database())?;
        self.oracles.extend(self.followers.judge(&stored).await?);
        let server = format!("http://{}", world.api.addr);
        self.oracles.extend(told::check(&stored, &world.clients, &self.commands, &server).await?);
        self.stop.cancel();
        while self.tasks.join_next().await.is_some() {}
        // Where there was room for every write, nothing was refused.
        let ready = self.ready.oracle();
        self.oracles.extend((ready.cases > 0).then_some(ready));
        if self.stays {
            self.oracles.extend(self.readers.oracles());
        }
        if let Some(mut held) = self.calm.hold_soon().await {
            held.drain(LEASE * 10, &world.log).await?;
        }
        Ok(())
    }

    /// Nobody uses the database any more: changes a copy of it below `folder`, and takes away what nobody can read. What
    /// all of it came to.
    ///
    /// # Errors
    /// A copy cannot be made, or the database not be changed.
    pub async fn conclude(&mut self, world: &World, folder: &Path) -> Result<Vec<Oracle>> {
        let database = world.backend.database();
        self.oracles.extend(tampered::check(&database, &folder.join("tampered"), &self.commands).await?);
        self.oracles.push(poison::take_away(&database)?);
        self.oracles.extend(self.backups.judge(&database, world).await?);
        self.oracles.push(Stored::open(&database)?.times(world.host.wall().micros())?);
        Ok(std::mem::take(&mut self.oracles))
    }

    /// What could not be asked here.
    #[must_use]
    pub const fn missing(&self) -> Option<&'static str> {
        if self.stays { None } else { Some("readers that stay: they need a longer run") }
    }
}

/// Spoils the wires of followers alone, more often than those of all: their requests are few.
async fn spoil(wires: Proxy, mut dice: Dice, until: Duration) {
    while SystemClock.boot() < until {
        let within = Spoil::CutWithin(usize::try_from(dice.within(1..20_000)).unwrap_or(1));
        wires.order(*dice.pick(&[
            within,
            within,
            Spoil::EndWithin,
            Spoil::EndWithin,
            Spoil::CutAfter,
            Spoil::HalfOpen,
        ]));
        tokio::time::sleep(dice.millis(80..400)).await;
    }
    wires.calm();
}

/// Asks whether a server says that it is ready, as long as the disk is full.
async fn while_full(world: Arc<World>, ready: Ready, stop: CancellationToken) {
    let full = || world.log.was_on("disk_full", Duration::ZERO);
    while !stop.is_cancelled() {
        if full() {
            let over = async {
                while full() {
                    tokio::time::sleep(LOOK).await;
                }
            };
            tokio::select! {
                () = ready.look() => {}
                () = over => {}
            }
        }
        tokio::select! {
            () = stop.cancelled() => {}
            () = tokio::time::sleep(LOOK) => {}
        }
    }
}
