//! The program itself as a child process, and the least client that can load it.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

use crate::error::Error;

/// How long a child may take to be ready.
const READY: Duration = Duration::from_secs(20);

/// A running `aetheris dev`.
pub(crate) struct Dev {
    pub(crate) address: SocketAddr,
    child: Child,
}

impl Dev {
    /// Starts one on a folder, and waits until it listens.
    pub(crate) async fn start(folder: &Path, agent: Option<&Path>, slots: usize) -> Result<Self, Error> {
        let program = std::env::current_exe().map_err(anyhow::Error::from)?;
        let mut command = Command::new(program);
        // It ends with this process, however this one ends.
        command.args(["child", "--parent", &std::process::id().to_string(), "--"]);
        // By its own folder it makes no other if that one is gone.
        command.current_dir(folder).args(["dev", "--data", ".", "--listen", "127.0.0.1:0"]);
        if let Some(agent) = agent {
            command.arg("--agent").arg(std::path::absolute(agent).map_err(anyhow::Error::from)?);
        }
        command.env("AETHERIS__WORKER__SLOTS", slots.to_string());
        // It logs as it does by default, and what it logs is no figure.
        let log = folder.join("dev.log");
        let log = std::fs::File::options().create(true).append(true).open(log).map_err(anyhow::Error::from)?;
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log).kill_on_drop(true);
        let mut child = command.spawn().map_err(anyhow::Error::from)?;
        let stdout = child.stdout.take().ok_or_else(|| anyhow::anyhow!("the child has no output"))?;
        let mut lines = BufReader::new(stdout).lines();
        let line = tokio::select! {
            line = lines.next_line() => line.map_err(anyhow::Error::from)?.unwrap_or_default(),
            () = tokio::time::sleep(READY) => return Err(Error::Internal(anyhow::anyhow!("`aetheris dev` was not ready within 20 s"))),
        };
        let address = line.rsplit("http://").next().and_then(|text| text.parse().ok());
        let address =
            address.ok_or_else(|| anyhow::anyhow!("`aetheris dev` said `{line}` instead of where it listens"))?;
        Ok(Self { address, child })
    }

    /// Its process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id().unwrap_or(0)
    }

    /// Kills it with SIGKILL and waits until it is gone.
    pub(crate) async fn kill(mut self) -> Result<(), Error> {
        self.child.start_kill().map_err(anyhow::Error::from)?;
        self.child.wait().await.map_err(anyhow::Error::from)?;
        Ok(())
    }
}

/// One connection, one request at a time, answers with a `Content-Length`.
pub(crate) struct Connection {
    buffer: Vec<u8>,
    stream: TcpStream,
}

impl Connection {
    pub(crate) async fn open(address: SocketAddr) -> Result<Self, Error> {
        let stream = TcpStream::connect(address).await.map_err(anyhow::Error::from)?;
        stream.set_nodelay(true).map_err(anyhow::Error::from)?;
        Ok(Self { buffer: Vec::with_capacity(4_096), stream })
    }

    /// Sends a request and returns status and body.
    pub(crate) async fn call(&mut self, method: &str, path: &str, body: &str) -> Result<(u16, Vec<u8>), Error> {
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        self.stream.write_all(request.as_bytes()).await.map_err(anyhow::Error::from)?;
        self.buffer.clear();
        let head = loop {
            if let Some(end) = self.buffer.windows(4).position(|w| w == b"\r\n\r\n") {
                break end + 4;
            }
            self.read().await?;
        };
        let text = String::from_utf8_lossy(&self.buffer[..head]).to_ascii_lowercase();
        let status = text.split(' ').nth(1).and_then(|s| s.parse().ok()).unwrap_or(0);
        let length =
            text.lines().find_map(|line| line.strip_prefix("content-length:")).and_then(|v| v.trim().parse().ok());
        let length: usize = length.ok_or_else(|| anyhow::anyhow!("an answer without a length: {text}"))?;
        while self.buffer.len() < head + length {
            self.read().await?;
        }
        Ok((status, self.buffer[head..head + length].to_vec()))
    }

    async fn read(&mut self) -> Result<(), Error> {
        match self.stream.read_buf(&mut self.buffer).await {
            Ok(0) => Err(Error::Internal(anyhow::anyhow!("the server closed the connection"))),
            Ok(_) => Ok(()),
            Err(error) => Err(Error::Internal(error.into())),
        }
    }
}
