//! What can be asked of the writer, how each request is decided, and how it is answered.

use std::time::Duration;

use aetheris_core::id::{AgentName, TenantId};
use aetheris_core::time::Span;
use aetheris_store::{CommitError, Committed, Heartbeat, NewAgent, PutAgent, Renewal, StoreError, UnitOfWork};
use tokio::sync::oneshot;

use crate::claim::PendingClaim;
use crate::error::{Error, Stop};
use crate::tx::Tx;
use crate::{agents, commit, heartbeat, unknown};

type Reply<T> = oneshot::Sender<Result<T, StoreError>>;

/// What is asked of the writer.
pub(crate) enum Request {
    Commit(Box<UnitOfWork>, oneshot::Sender<Result<Committed, CommitError>>),
    Claim(PendingClaim),
    Heartbeat(Heartbeat, Duration, Reply<Vec<Renewal>>),
    PutAgent(NewAgent, Reply<PutAgent>),
    DeleteAgent(TenantId, AgentName, Reply<bool>),
    /// Asks for nothing; with `true`, one small write is tried.
    Probe(bool, Reply<Span>),
    ResolveUnknown(Box<UnitOfWork>, Reply<Option<Committed>>),
}

/// An answer that waits for its COMMIT.
pub(crate) enum Answer {
    Commit(Result<Committed, CommitError>),
    Heartbeat(Vec<Renewal>),
    PutAgent(PutAgent),
    DeleteAgent(bool),
    Probe(Span),
    ResolveUnknown(Option<Committed>),
}

/// Decides one request. An error rolls the whole transaction back.
pub(crate) fn execute(tx: &mut Tx<'_, '_>, request: &Request) -> Result<Answer, Error> {
    match request {
        Request::Commit(unit, _) => match commit::apply(tx, unit) {
            Ok(committed) => Ok(Answer::Commit(Ok(committed))),
            Err(Stop::Answer(answer)) => Ok(Answer::Commit(Err(answer))),
            Err(Stop::Broken(error)) => Err(error),
        },
        Request::Heartbeat(request, sent_at, _) => heartbeat::renew(tx, request, *sent_at).map(Answer::Heartbeat),
        Request::PutAgent(agent, _) => agents::put(tx, agent).map(Answer::PutAgent),
        Request::DeleteAgent(tenant, name, _) => agents::delete(tx, tenant, name).map(Answer::DeleteAgent),
        Request::Probe(write, _) => {
            if *write {
                tx.write_mark();
            }
            Ok(Answer::Probe(tx.look().ahead()))
        }
        Request::ResolveUnknown(unit, _) => unknown::find(tx, unit).map(Answer::ResolveUnknown),
        Request::Claim(_) => Err(Error::Invalid("a claim stands beside the requests".to_owned())),
    }
}

/// Whoever asked may have gone.
pub(crate) fn send(request: Request, answer: Answer) {
    match (request, answer) {
        (Request::Commit(_, reply), Answer::Commit(answer)) => drop(reply.send(answer)),
        (Request::Heartbeat(_, _, reply), Answer::Heartbeat(answer)) => drop(reply.send(Ok(answer))),
        (Request::PutAgent(_, reply), Answer::PutAgent(answer)) => drop(reply.send(Ok(answer))),
        (Request::DeleteAgent(_, _, reply), Answer::DeleteAgent(answer)) => drop(reply.send(Ok(answer))),
        (Request::Probe(_, reply), Answer::Probe(answer)) => drop(reply.send(Ok(answer))),
        (Request::ResolveUnknown(_, reply), Answer::ResolveUnknown(answer)) => drop(reply.send(Ok(answer))),
        // A dropped reply is an error to whoever waits for it.
        _ => {}
    }
}
