//! A server that does to each connection what a test says, and remembers what it was sent.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinSet;

/// What is done with a request that was read.
pub(crate) enum Reply {
    /// These bytes; the connection stays open for the next request.
    Bytes(Vec<u8>),
    /// These bytes, then the end.
    Last(Vec<u8>),
    /// These bytes, then nothing, for ever.
    Stall(Vec<u8>),
}

/// A request as it came.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) body: String,
    pub(crate) connection: usize,
    pub(crate) head: String,
}

impl Seen {
    pub(crate) fn line(&self) -> &str {
        self.head.lines().next().unwrap_or_default()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (key, value) = line.split_once(": ")?;
            key.eq_ignore_ascii_case(name).then_some(value)
        })
    }
}

/// A port of this machine that refuses every connection: it is taken, and nobody listens.
pub(crate) struct Nobody(TcpSocket);

impl Nobody {
    pub(crate) fn new() -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        Self(socket)
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/", self.0.local_addr().unwrap())
    }
}

type Behaviour = dyn Fn(&Seen) -> Reply + Send + Sync;

#[derive(Clone)]
enum Manner {
    End,
    Greet(&'static str),
    Serve(Arc<Behaviour>),
}

#[derive(Default)]
struct Memory {
    connections: usize,
    seen: Vec<Seen>,
}

/// The server; it ends with the test.
pub(crate) struct Peer {
    address: SocketAddr,
    memory: Arc<Mutex<Memory>>,
    _tasks: JoinSet<()>,
}

impl Peer {
    /// Reads requests and does with each what `behaviour` says.
    pub(crate) async fn new(behaviour: impl Fn(&Seen) -> Reply + Send + Sync + 'static) -> Self {
        Self::start("127.0.0.1:0", Manner::Serve(Arc::new(behaviour))).await
    }

    /// Another address of this machine that is loopback too.
    pub(crate) async fn inside() -> Self {
        Self::start("127.0.0.2:0", Manner::Serve(Arc::new(|_| Reply::Bytes(answer("200 OK", "", "{}"))))).await
    }

    /// Gives every request one answer.
    pub(crate) async fn answering(status: &str, headers: &str, body: &str) -> Self {
        let answer = answer(status, headers, body);
        Self::new(move |_| Reply::Bytes(answer.clone())).await
    }

    /// Ends every connection before anything is read.
    pub(crate) async fn deaf() -> Self {
        Self::start("127.0.0.1:0", Manner::End).await
    }

    /// Speaks first, whoever calls.
    pub(crate) async fn greeting(words: &'static str) -> Self {
        Self::start("127.0.0.1:0", Manner::Greet(words)).await
    }

    async fn start(at: &str, manner: Manner) -> Self {
        let listener = TcpListener::bind(at).await.unwrap();
        let address = listener.local_addr().unwrap();
        let memory = Arc::new(Mutex::new(Memory::default()));
        let mut tasks = JoinSet::new();
        let shared = Arc::clone(&memory);
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((mut stream, _)) = listener.accept().await {
                let number = {
                    let mut memory = shared.lock().unwrap();
                    memory.connections += 1;
                    memory.connections
                };
                let (manner, memory) = (manner.clone(), Arc::clone(&shared));
                connections.spawn(async move {
                    match manner {
                        Manner::End => {}
                        Manner::Greet(words) => {
                            let _ = stream.write_all(words.as_bytes()).await;
                            let _ = stream.read_to_end(&mut Vec::new()).await;
                        }
                        Manner::Serve(behaviour) => serve(stream, number, behaviour.as_ref(), &memory).await,
                    }
                });
            }
        });
        Self { address, memory, _tasks: tasks }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) fn port(&self) -> u16 {
        self.address.port()
    }

    pub(crate) fn connections(&self) -> usize {
        self.memory.lock().unwrap().connections
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.memory.lock().unwrap().seen.clone()
    }
}

/// An answer with its length.
pub(crate) fn answer(status: &str, headers: &str, body: &str) -> Vec<u8> {
    format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n{headers}\r\n{body}", body.len()).into_bytes()
}

async fn serve(mut stream: TcpStream, connection: usize, behaviour: &Behaviour, memory: &Mutex<Memory>) {
    while let Some(seen) = read_request(&mut stream, connection).await {
        memory.lock().unwrap().seen.push(seen.clone());
        let (bytes, stays) = match behaviour(&seen) {
            Reply::Bytes(bytes) => (bytes, true),
            Reply::Last(bytes) => (bytes, false),
            Reply::Stall(bytes) => {
                let _ = stream.write_all(&bytes).await;
                std::future::pending::<()>().await;
                return;
            }
        };
        if stream.write_all(&bytes).await.is_err() || !stays {
            return;
        }
    }
}

async fn read_request(stream: &mut TcpStream, connection: usize) -> Option<Seen> {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(at) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break at;
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8(bytes[..end].to_vec()).ok()?;
    let mut seen = Seen { body: String::new(), connection, head };
    let length = seen.header("content-length").map_or(0, |length| length.parse().unwrap());
    while bytes.len() < end + 4 + length {
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    }
    seen.body = String::from_utf8(bytes[end + 4..].to_vec()).ok()?;
    Some(seen)
}
