//! The addresses that no tool may reach, whatever is allowed: those at which processes of this store listen.
//!
//! Whoever can send such a process a request can answer what waits for a person. A text from a message or a
//! model must therefore never become one, neither by an address nor by a name or a redirect.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use ipnet::Ipv6Net;

use crate::exchange::is_out_of_files;

/// The well-known prefix by which networks without IPv4 reach public IPv4 addresses.
pub(crate) const NAT64: Ipv6Net = Ipv6Net::new_assert(Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0), 96);

/// Knows at which addresses the live processes of this store listen.
pub trait OwnAddresses: Send + Sync {
    /// All of them, as they are now. Asked before every call, so it has to be quick.
    ///
    /// # Errors
    /// They cannot be read; nothing is called then.
    fn listening(&self) -> io::Result<Vec<SocketAddr>>;
}

/// For tools of a process whose store has no listener.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Nowhere;

impl OwnAddresses for Nowhere {
    fn listening(&self) -> io::Result<Vec<SocketAddr>> {
        Ok(Vec::new())
    }
}

/// Own listeners at one port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AtPort(Vec<IpAddr>);

impl AtPort {
    /// Those of a port; `None` where there are none.
    pub(crate) fn of(listening: &[SocketAddr], port: u16) -> Option<Self> {
        let at: Vec<IpAddr> = listening.iter().filter(|own| own.port() == port).map(|own| plain(own.ip())).collect();
        (!at.is_empty()).then_some(Self(at))
    }

    /// Whether one of them answers at this address.
    ///
    /// # Errors
    /// No file is left to find it out with.
    pub(crate) fn answers(&self, address: IpAddr) -> io::Result<bool> {
        let address = plain(address);
        // "Any address" as a target is this machine, by whatever listens there.
        if address.is_unspecified() || self.0.contains(&address) {
            return Ok(!aetheris_fault::planted!("own-server-reached"));
        }
        Ok(self.0.iter().any(IpAddr::is_unspecified) && is_local(address)?)
    }
}

/// The address itself, out of the forms in which IPv6 carries an IPv4 address.
fn plain(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) if NAT64.contains(&v6) => {
            let [.., a, b, c, d] = v6.octets();
            IpAddr::V4(Ipv4Addr::new(a, b, c, d))
        }
        address => address,
    }
}

/// Whether an address is one of this machine's: only those can be bound. What cannot be found out counts as
/// one, unless a further try can find it out.
fn is_local(address: IpAddr) -> io::Result<bool> {
    match UdpSocket::bind((address, 0)) {
        Ok(_) => Ok(true),
        Err(error) if is_out_of_files(&error) => Err(error),
        Err(error) => Ok(error.kind() != io::ErrorKind::AddrNotAvailable),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(listener: &str, target: &str) -> bool {
        let listener: SocketAddr = listener.parse().unwrap();
        let target: SocketAddr = target.parse().unwrap();
        AtPort::of(&[listener], target.port()).is_some_and(|own| own.answers(target.ip()).unwrap())
    }

    #[test]
    fn a_listener_is_known_in_every_form_of_its_address() {
        for (listener, target) in [
            ("127.0.0.1:8080", "127.0.0.1:8080"),
            ("127.0.0.1:8080", "[::ffff:127.0.0.1]:8080"),
            ("127.0.0.1:8080", "[64:ff9b::127.0.0.1]:8080"),
            ("127.0.0.1:8080", "0.0.0.0:8080"),
            ("127.0.0.1:8080", "[::]:8080"),
            ("[::ffff:127.0.0.1]:8080", "127.0.0.1:8080"),
            ("0.0.0.0:8080", "127.0.0.1:8080"),
            ("0.0.0.0:8080", "127.9.9.9:8080"),
            ("0.0.0.0:8080", "[::ffff:127.0.0.1]:8080"),
            ("[::]:8080", "127.0.0.1:8080"),
            ("[::]:8080", "0.0.0.0:8080"),
            ("8.8.8.8:53", "8.8.8.8:53"),
        ] {
            assert!(own(listener, target), "{listener} {target}");
        }
        for (listener, target) in [
            ("127.0.0.1:8080", "127.0.0.1:8081"),
            ("127.0.0.1:8080", "127.0.0.2:8080"),
            ("127.0.0.1:8080", "[::1]:8080"),
            ("0.0.0.0:8080", "192.0.2.1:8080"),
            ("[::]:8080", "[2001:db8::1]:8080"),
            ("8.8.8.8:53", "8.8.4.4:53"),
        ] {
            assert!(!own(listener, target), "{listener} {target}");
        }
    }
}
