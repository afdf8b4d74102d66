//! Which addresses tools may reach (SPEC §12).
//!
//! The check sits where a name becomes addresses: what the resolver hands to the connector was judged,
//! and nothing else is connected to, so that a name cannot answer differently between a check and its
//! use. Addresses written into a URL never meet the resolver and are judged by [`Guard::check_url`],
//! which every hop of a redirect passes too.
//!
//! Forbidden is whatever is not public, in every form in which IPv6 can carry an IPv4 address. Networks
//! that the operator lists are allowed, and nothing else is: no header, agent file or model can add one.

use std::error::Error;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use futures_util::future::BoxFuture;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use reqwest::Url;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use crate::OF_WORKER;
use crate::own::{AtPort, NAT64};

const fn v4(a: u8, b: u8, c: u8, d: u8, prefix: u8) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), prefix)
}

const fn v6(a: u16, b: u16, c: u16, prefix: u8) -> Ipv6Net {
    Ipv6Net::new_assert(Ipv6Addr::new(a, b, c, 0, 0, 0, 0, 0), prefix)
}

/// IPv4 networks that are not public, by the special-purpose registry, and one public address that every
/// machine of a large cloud reaches its metadata service at.
const FORBIDDEN_V4: [(Ipv4Net, &str); 18] = [
    (v4(0, 0, 0, 0, 8), "unspecified"),
    (v4(10, 0, 0, 0, 8), "private"),
    (v4(100, 64, 0, 0, 10), "shared by carriers"),
    (v4(127, 0, 0, 0, 8), "loopback"),
    (v4(168, 63, 129, 16, 32), "metadata"),
    (v4(169, 254, 169, 254, 32), "metadata"),
    (v4(169, 254, 0, 0, 16), "link-local"),
    (v4(172, 16, 0, 0, 12), "private"),
    (v4(192, 0, 0, 0, 24), "protocol assignments"),
    (v4(192, 0, 2, 0, 24), "documentation"),
    (v4(192, 88, 99, 0, 24), "6to4 relays"),
    (v4(192, 168, 0, 0, 16), "private"),
    (v4(198, 18, 0, 0, 15), "benchmarking"),
    (v4(198, 51, 100, 0, 24), "documentation"),
    (v4(203, 0, 113, 0, 24), "documentation"),
    (v4(224, 0, 0, 0, 4), "multicast"),
    (v4(255, 255, 255, 255, 32), "broadcast"),
    (v4(240, 0, 0, 0, 4), "reserved"),
];

/// IPv6 networks that are not public although they lie inside [`PUBLIC_V6`].
const FORBIDDEN_V6: [(Ipv6Net, &str); 4] = [
    // Teredo, benchmarking, ORCHID and what else the protocols keep for themselves.
    (v6(0x2001, 0, 0, 23), "protocol assignments"),
    (v6(0x2001, 0xdb8, 0, 32), "documentation"),
    (v6(0x2002, 0, 0, 16), "6to4"),
    (v6(0x3fff, 0, 0, 20), "documentation"),
];

/// All that was ever assigned to public use.
const PUBLIC_V6: Ipv6Net = v6(0x2000, 0, 0, 3);

/// Names for what lies outside of [`PUBLIC_V6`], for messages only.
const NAMED_V6: [(Ipv6Net, &str); 8] = [
    (v6(0, 0, 0, 128), "unspecified"),
    (Ipv6Net::new_assert(Ipv6Addr::LOCALHOST, 128), "loopback"),
    (v6(0, 0, 0, 96), "an IPv4 address in disguise"),
    (v6(0x64, 0xff9b, 1, 48), "a local translation prefix"),
    (v6(0xfc00, 0, 0, 7), "private"),
    (v6(0xfe80, 0, 0, 10), "link-local"),
    (v6(0xfec0, 0, 0, 10), "site-local"),
    (v6(0xff00, 0, 0, 8), "multicast"),
];

/// Decides which addresses tools may reach.
#[derive(Debug, Clone, Default)]
pub struct Guard {
    allow: Vec<IpNet>,
}

impl Guard {
    /// Public addresses, and these networks beside them.
    #[must_use]
    pub fn new(allow: impl IntoIterator<Item = IpNet>) -> Self {
        Self { allow: allow.into_iter().collect() }
    }

    /// The same, and these networks.
    #[must_use]
    pub fn and(mut self, networks: impl IntoIterator<Item = IpNet>) -> Self {
        self.allow.extend(networks);
        self
    }

    /// The same, and loopback.
    #[must_use]
    pub fn with_loopback(mut self) -> Self {
        self.allow.push(IpNet::V4(v4(127, 0, 0, 0, 8)));
        self.allow.push(IpNet::V6(Ipv6Net::new_assert(Ipv6Addr::LOCALHOST, 128)));
        self
    }

    /// Judges one address.
    ///
    /// # Errors
    /// The kind of network it belongs to.
    pub fn check(&self, address: IpAddr) -> Result<(), &'static str> {
        if self.allows(address) {
            return Ok(());
        }
        match address.to_canonical() {
            IpAddr::V4(address) => self.check_v4(address),
            IpAddr::V6(address) => self.check_v6(address),
        }
    }

    /// Judges a URL as far as that is possible before its name is resolved.
    ///
    /// # Errors
    /// [`Blocked`] says by which rule it must not be called.
    pub fn check_url(&self, url: &Url) -> Result<(), Blocked> {
        let host = url.host_str().unwrap_or_default().to_owned();
        if !matches!(url.scheme(), "http" | "https") {
            return Err(Blocked { host, why: Why::Scheme(url.scheme().to_owned()) });
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(Blocked { host, why: Why::UserInfo });
        }
        match literal(url) {
            Some(address) => self.check(address).map_err(|kind| Blocked { host, why: Why::Address(kind) }),
            None => Ok(()),
        }
    }

    fn allows(&self, address: IpAddr) -> bool {
        let canonical = address.to_canonical();
        self.allow.iter().any(|network| network.contains(&address) || network.contains(&canonical))
    }

    fn check_v4(&self, address: Ipv4Addr) -> Result<(), &'static str> {
        match FORBIDDEN_V4.iter().find(|(network, _)| network.contains(&address)) {
            Some((_, kind)) if !self.allows(IpAddr::V4(address)) => Err(kind),
            _ => Ok(()),
        }
    }

    fn check_v6(&self, address: Ipv6Addr) -> Result<(), &'static str> {
        if NAT64.contains(&address) {
            let [.., a, b, c, d] = address.octets();
            return self.check_v4(Ipv4Addr::new(a, b, c, d));
        }
        if !PUBLIC_V6.contains(&address) {
            return Err(named(&NAMED_V6, address).unwrap_or("reserved"));
        }
        named(&FORBIDDEN_V6, address).map_or(Ok(()), Err)
    }
}

/// The address that a URL has for its host. The URL parser has turned decimal, octal, hexadecimal and short
/// forms into plain ones.
pub(crate) fn literal(url: &Url) -> Option<IpAddr> {
    let host = url.host_str().unwrap_or_default();
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host).parse().ok()
}

fn named(networks: &[(Ipv6Net, &'static str)], address: Ipv6Addr) -> Option<&'static str> {
    networks.iter().find(|(network, _)| network.contains(&address)).map(|(_, kind)| *kind)
}

/// A URL that tools must not call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blocked {
    /// The host as the URL has it.
    pub host: String,
    /// By which rule.
    pub why: Why,
}

/// The rule that a URL breaks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Why {
    /// The host is, or its name stands for, an address of this kind only.
    Address(&'static str),
    /// A process of this store listens there.
    Own,
    /// The scheme is neither http nor https.
    Scheme(String),
    /// It carries a user's name or password.
    UserInfo,
}

impl Blocked {
    /// The rule in words, and `whose` configuration could say otherwise.
    pub(crate) fn by(&self, whose: &str) -> String {
        let host = &self.host;
        match &self.why {
            // The address that a name stands for is left out: a message must not map a network.
            Why::Address(kind) => format!(
                "`{host}` is at an address that tools must not reach ({kind}); `tools.http.allow` of {whose} lists networks beyond the public ones"
            ),
            Why::Own => format!("`{host}` is where a server of this store listens, which no tool may call"),
            Why::Scheme(scheme) => format!("the scheme `{scheme}` is not http or https"),
            Why::UserInfo => "the URL holds a user name or password; send them in a header".to_owned(),
        }
    }
}

impl fmt::Display for Blocked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.by(OF_WORKER))
    }
}

impl Error for Blocked {}

/// Turns names into addresses.
pub trait Lookup: Send + Sync {
    /// The addresses of a name; their ports do not matter.
    fn lookup(&self, name: String) -> BoxFuture<'static, std::io::Result<Vec<SocketAddr>>>;
}

/// The resolver of the operating system.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemLookup;

impl Lookup for SystemLookup {
    fn lookup(&self, name: String) -> BoxFuture<'static, std::io::Result<Vec<SocketAddr>>> {
        Box::pin(async move { Ok(tokio::net::lookup_host((name.as_str(), 0)).await?.collect()) })
    }
}

/// A resolver whose answers the guard has judged.
pub(crate) struct GuardedResolver {
    pub(crate) guard: Guard,
    pub(crate) lookup: Arc<dyn Lookup>,
    /// Own listeners at the port of the one call that this resolver is for.
    pub(crate) own: Option<AtPort>,
}

impl Resolve for GuardedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let (guard, own, host) = (self.guard.clone(), self.own.clone(), name.as_str().to_owned());
        let lookup = self.lookup.lookup(host.clone());
        Box::pin(async move {
            let mut refused = None;
            let mut allowed = Vec::new();
            for address in lookup.await? {
                let answers = own.as_ref().map_or(Ok(false), |own| own.answers(address.ip()));
                match guard.check(address.ip()) {
                    Ok(()) if answers? => refused = Some(Why::Own),
                    Ok(()) => allowed.push(address),
                    Err(kind) => refused = Some(Why::Address(kind)),
                }
            }
            match refused {
                Some(why) if allowed.is_empty() => Err(Blocked { host, why }.into()),
                _ => Ok(Box::new(allowed.into_iter()) as Addrs),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(guard: &Guard, url: &str) -> Result<(), Blocked> {
        guard.check_url(&Url::parse(url).unwrap_or_else(|e| panic!("{url}: {e}")))
    }

    /// A name may have public and private addresses: only the public ones are connected to, whatever their order.
    #[tokio::test]
    async fn of_a_name_with_many_addresses_only_those_that_are_allowed_are_left() {
        struct Fixed(&'static [&'static str]);
        impl Lookup for Fixed {
            fn lookup(&self, _name: String) -> BoxFuture<'static, std::io::Result<Vec<SocketAddr>>> {
                let all = self.0.iter().map(|ip| SocketAddr::new(ip.parse().unwrap(), 0)).collect();
                Box::pin(async move { Ok(all) })
            }
        }
        let left = async |all: &'static [&'static str]| {
            let resolver = GuardedResolver { guard: Guard::default(), lookup: Arc::new(Fixed(all)), own: None };
            let addresses = resolver.resolve("name.example".parse().unwrap()).await;
            addresses.map(|found| found.map(|address| address.ip().to_string()).collect::<Vec<_>>())
        };
        let (one, two) = ("93.184.215.14", "2606:2800:21f:cb07:6820:80da:af6b:8b2c");
        assert_eq!(left(&["93.184.215.14", "169.254.169.254", "10.0.0.1"]).await.unwrap(), [one]);
        assert_eq!(left(&["10.0.0.1", "93.184.215.14", "::1"]).await.unwrap(), [one]);
        let both = left(&["93.184.215.14", "127.0.0.1", "2606:2800:21f:cb07:6820:80da:af6b:8b2c"]).await.unwrap();
        assert_eq!(both, [one, two]);
        assert!(left(&["10.0.0.1", "fe80::1"]).await.is_err());
    }

    /// The first and the last address of every network that is not public, and those beside it. An end that is not its own
    /// belongs to the network beside it.
    #[test]
    fn a_network_is_forbidden_from_its_first_address_to_its_last() {
        for (before, first, last, after) in [
            ("", "0.0.0.0", "0.255.255.255", "1.0.0.0"),
            ("9.255.255.255", "10.0.0.0", "10.255.255.255", "11.0.0.0"),
            ("100.63.255.255", "100.64.0.0", "100.127.255.255", "100.128.0.0"),
            ("126.255.255.255", "127.0.0.0", "127.255.255.255", "128.0.0.0"),
            ("168.63.129.15", "168.63.129.16", "168.63.129.16", "168.63.129.17"),
            ("169.253.255.255", "169.254.0.0", "169.254.255.255", "169.255.0.0"),
            ("172.15.255.255", "172.16.0.0", "172.31.255.255", "172.32.0.0"),
            ("191.255.255.255", "192.0.0.0", "192.0.0.255", "192.0.1.0"),
            ("192.0.1.255", "192.0.2.0", "192.0.2.255", "192.0.3.0"),
            ("192.88.98.255", "192.88.99.0", "192.88.99.255", "192.88.100.0"),
            ("192.167.255.255", "192.168.0.0", "192.168.255.255", "192.169.0.0"),
            ("198.17.255.255", "198.18.0.0", "198.19.255.255", "198.20.0.0"),
            ("198.51.99.255", "198.51.100.0", "198.51.100.255", "198.51.101.0"),
            ("203.0.112.255", "203.0.113.0", "203.0.113.255", "203.0.114.0"),
            ("223.255.255.255", "224.0.0.0", "239.255.255.255", ""),
            ("", "240.0.0.0", "255.255.255.255", ""),
            ("", "::", "1fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", ""),
            ("", "2001::", "2001:1ff:ffff:ffff:ffff:ffff:ffff:ffff", "2001:200::"),
            ("2001:db7:ffff::", "2001:db8::", "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff", "2001:db9::"),
            ("2001:ffff:ffff::", "2002::", "2002:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "2003::"),
            ("3ffe:ffff:ffff::", "3fff::", "3fff:fff:ffff:ffff:ffff:ffff:ffff:ffff", "3fff:1000::"),
            ("3fff:ffff:ffff::", "4000::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", ""),
        ] {
            let guard = Guard::default();
            for inside in [first, last] {
                assert!(guard.check(inside.parse().unwrap()).is_err(), "{inside}");
            }
            for beside in [before, after].into_iter().filter(|beside| !beside.is_empty()) {
                assert_eq!(guard.check(beside.parse().unwrap()), Ok(()), "{beside}");
            }
        }
    }

    #[test]
    #[expect(clippy::too_many_lines, reason = "a table")]
    fn every_form_of_a_forbidden_address_is_refused() {
        let forbidden = [
            ("127.0.0.1", "loopback"),
            ("127.255.255.254", "loopback"),
            ("127.1", "loopback"),
            ("127.0.1", "loopback"),
            ("2130706433", "loopback"),
            ("0x7f000001", "loopback"),
            ("0x7f.1", "loopback"),
            ("0x7f.0x0.0x0.0x1", "loopback"),
            ("0177.0.0.1", "loopback"),
            ("017700000001", "loopback"),
            ("0177.0x0.1", "loopback"),
            ("127.0.0.1.", "loopback"),
            ("%31%32%37.0.0.1", "loopback"),
            ("127。0。0。1", "loopback"),
            ("①②⑦.⓪.⓪.①", "loopback"),
            ("0.0.0.0", "unspecified"),
            ("0", "unspecified"),
            ("0x0", "unspecified"),
            ("0.1.2.3", "unspecified"),
            ("10.0.0.1", "private"),
            ("10.255.255.255", "private"),
            ("0xa.1", "private"),
            ("012.1.2.3", "private"),
            ("167772161", "private"),
            ("172.16.0.1", "private"),
            ("172.31.255.255", "private"),
            ("192.168.0.1", "private"),
            ("0xc0a80001", "private"),
            ("3232235521", "private"),
            ("100.64.0.1", "shared by carriers"),
            ("100.100.100.200", "shared by carriers"),
            ("100.127.255.255", "shared by carriers"),
            ("169.254.169.254", "metadata"),
            ("2852039166", "metadata"),
            ("0xa9fea9fe", "metadata"),
            ("0251.0376.0251.0376", "metadata"),
            ("169.254.170.2", "link-local"),
            ("168.63.129.16", "metadata"),
            ("192.0.0.192", "protocol assignments"),
            ("192.0.2.1", "documentation"),
            ("198.51.100.7", "documentation"),
            ("203.0.113.9", "documentation"),
            ("192.88.99.1", "6to4 relays"),
            ("198.18.0.1", "benchmarking"),
            ("198.19.255.255", "benchmarking"),
            ("224.0.0.1", "multicast"),
            ("239.255.255.250", "multicast"),
            ("240.0.0.1", "reserved"),
            ("255.255.255.255", "broadcast"),
            ("4294967295", "broadcast"),
            ("[::]", "unspecified"),
            ("[::1]", "loopback"),
            ("[0:0:0:0:0:0:0:1]", "loopback"),
            ("[0000::0001]", "loopback"),
            ("[::ffff:127.0.0.1]", "loopback"),
            ("[::ffff:7f00:1]", "loopback"),
            ("[::ffff:169.254.169.254]", "metadata"),
            ("[0:0:0:0:0:ffff:a00:1]", "private"),
            ("[::127.0.0.1]", "an IPv4 address in disguise"),
            ("[::a9fe:a9fe]", "an IPv4 address in disguise"),
            ("[::ffff:0:127.0.0.1]", "reserved"),
            ("[64:ff9b::127.0.0.1]", "loopback"),
            ("[64:ff9b::a9fe:a9fe]", "metadata"),
            ("[64:ff9b::10.1.2.3]", "private"),
            ("[64:ff9b:1::8.8.8.8]", "a local translation prefix"),
            ("[2002:7f00:1::]", "6to4"),
            ("[2002:a9fe:a9fe::1]", "6to4"),
            ("[2001:0:4136:e378:8000:63bf:3fff:fdd2]", "protocol assignments"),
            ("[2001:2::1]", "protocol assignments"),
            ("[2001:10::1]", "protocol assignments"),
            ("[2001:db8::1]", "documentation"),
            ("[3fff::1]", "documentation"),
            ("[fc00::1]", "private"),
            ("[fd00:ec2::254]", "private"),
            ("[fdff:ffff::1]", "private"),
            ("[fe80::1]", "link-local"),
            ("[febf::1]", "link-local"),
            ("[fec0::1]", "site-local"),
            ("[ff02::1]", "multicast"),
            ("[100::1]", "reserved"),
            ("[5f00::1]", "reserved"),
            ("[4000::1]", "reserved"),
        ];
        assert!(forbidden.len() >= 60);
        for (host, kind) in forbidden {
            for url in [format!("http://{host}/"), format!("https://{host}:8443/a?b#c")] {
                match judged(&Guard::default(), &url) {
                    Err(Blocked { why: Why::Address(found), .. }) => assert_eq!(found, kind, "{url}"),
                    other => panic!("{url}: {other:?}"),
                }
            }
        }
    }

    #[test]
    fn public_addresses_and_names_pass() {
        let public = [
            "8.8.8.8",
            "1.1.1.1",
            "134744072",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "126.255.255.255",
            "128.0.0.1",
            "169.253.255.255",
            "169.255.0.0",
            "172.15.255.255",
            "172.32.0.0",
            "192.167.255.255",
            "192.169.0.0",
            "198.17.255.255",
            "198.20.0.0",
            "223.255.255.255",
            "[2606:4700:4700::1111]",
            "[2001:4860:4860::8888]",
            "[2001:200::1]",
            "[::ffff:8.8.8.8]",
            "[64:ff9b::8.8.8.8]",
            "[2003::1]",
            "[3ffe::1]",
            "example.com",
            "example.com.",
            "localhost",
        ];
        for host in public {
            assert_eq!(judged(&Guard::default(), &format!("https://{host}/")), Ok(()), "{host}");
        }
    }

    #[test]
    fn other_schemes_and_user_info_are_refused() {
        for url in ["ftp://8.8.8.8/", "file:///etc/passwd", "gopher://8.8.8.8/", "unix:/run/x.sock", "data:,x"] {
            assert!(matches!(judged(&Guard::default(), url), Err(Blocked { why: Why::Scheme(_), .. })), "{url}");
        }
        for url in ["http://a@8.8.8.8/", "http://a:b@8.8.8.8/", "http://:b@8.8.8.8/", "http://8.8.8.8@127.0.0.1/"] {
            assert!(matches!(judged(&Guard::default(), url), Err(Blocked { why: Why::UserInfo, .. })), "{url}");
        }
    }

    #[test]
    fn a_listed_network_is_allowed_in_every_form_and_its_neighbours_are_not() {
        let guard = Guard::new(["10.1.0.0/16".parse().unwrap(), "fd00:1::/32".parse().unwrap()]);
        for host in ["10.1.2.3", "[::ffff:10.1.2.3]", "[64:ff9b::10.1.2.3]", "[fd00:1::9]", "0xa010203"] {
            assert_eq!(judged(&guard, &format!("http://{host}/")), Ok(()), "{host}");
        }
        for host in ["10.2.0.1", "127.0.0.1", "[fd00:2::9]", "[::10.1.2.3]", "[2002:a01:203::]"] {
            assert!(judged(&guard, &format!("http://{host}/")).is_err(), "{host}");
        }
        let dev = Guard::default().with_loopback();
        for (host, allowed) in [("127.0.0.1", true), ("[::1]", true), ("[::ffff:127.9.9.9]", true), ("10.0.0.1", false)]
        {
            assert_eq!(judged(&dev, &format!("http://{host}/")).is_ok(), allowed, "{host}");
        }
    }

    #[test]
    fn a_forbidden_address_names_whose_configuration_forbids_it() {
        let blocked = judged(&Guard::default(), "http://10.0.0.1/").unwrap_err();
        assert!(blocked.to_string().contains("`tools.http.allow` of the worker's configuration"), "{blocked}");
        assert!(blocked.by(crate::OF_SERVER).contains("of the server's configuration"));
    }
}
