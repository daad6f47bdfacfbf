//! Which addresses may be connected to.
//!
//! The rule: for addresses that users give ([`Guard::Public`]) the *resolved* address is checked, the
//! connection goes to a checked address and to no other, and one private address among several refuses the
//! name as a whole. Providers that the operator configured ([`Guard::Operator`]) may live anywhere. Which
//! guard applies is the caller's choice; schemes are checked where URLs are parsed.

use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::Uri;
use hyper_util::client::legacy::connect::dns::Name;
use tower::Service;

use crate::resolve::Resolver;

/// Who chose the address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Guard {
    /// The operator, in the configuration: any address.
    #[default]
    Operator,
    /// A user: public addresses and web ports only.
    Public,
    /// A user, while developing: this machine's loopback addresses with any port, besides what
    /// [`Guard::Public`] allows.
    PublicOrLoopback,
}

/// The fixed words for an address that was refused.
pub(crate) const REFUSED: &str = "address is not allowed";

/// An address was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("address is not allowed")]
pub struct Refused;

/// Why a name cannot be connected to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NameFault {
    /// It leads to an address that is not allowed.
    #[error("address is not allowed")]
    Refused,
    /// It could not be resolved, or to no address.
    #[error("name resolution failed")]
    Unresolved,
}

/// Whether `address` is on the public internet, seen through every transition mechanism that embeds an
/// IPv4 address.
pub fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => is_public_v4(v4),
        IpAddr::V6(v6) => is_public_v6(v6),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let special = match (a, b) {
        // This network, private, loopback; multicast, reserved and broadcast.
        (0 | 10 | 127 | 224..=255, _)
        // Carrier-grade NAT, link-local, private, benchmarks.
        | (100, 64..=127) | (169, 254) | (172, 16..=31) | (198, 18..=19)
        | (192, 168) => true,
        // Protocol assignments, documentation, AS112, 6to4 relays.
        (192, 0) => matches!(c, 0 | 2),
        (192, 31) => c == 196,
        (192, 52) => c == 193,
        (192, 88) => c == 99,
        (192, 175) => c == 48,
        // Documentation.
        (198, 51) => c == 100,
        (203, 0) => c == 113,
        (_, _) => false,
    };
    !special
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let segments = address.segments();
    // Only global unicast space is routed; this excludes ::, ::1, v4-mapped, v4-compatible, 64:ff9b::/96,
    // 64:ff9b:1::/48, 100::/64, fc00::/7, fe80::/10, fec0::/10 and ff00::/8.
    if segments[0] & 0xe000 != 0x2000 {
        return false;
    }
    let special = match (segments[0], segments[1]) {
        // Protocol assignments, with Teredo 2001::/32, ORCHID and benchmarks; documentation; 6to4;
        // documentation (RFC 9637).
        (0x2001, 0x0000..=0x01ff | 0x0db8) | (0x2002, _) | (0x3fff, 0x0000..=0x0fff) => true,
        (_, _) => false,
    };
    !special
}

/// Whether users may name this port: the web's two, or an unprivileged one.
pub fn is_allowed_port(port: u16) -> bool {
    matches!(port, 80 | 443) || port >= 1024
}

/// Whether `host` is a name of this machine itself (RFC 6761).
pub(crate) fn is_loopback_name(host: &str) -> bool {
    let last = host.trim_end_matches('.').rsplit('.').next();
    last.is_some_and(|label| label.eq_ignore_ascii_case("localhost"))
}

impl Guard {
    /// Whether connections may go to `address`.
    pub(crate) fn allows(self, address: IpAddr) -> bool {
        match self {
            Self::Operator => true,
            Self::Public => is_public(address),
            Self::PublicOrLoopback => is_public(address) || address.is_loopback(),
        }
    }

    /// Checks what can be checked without resolving: the port, and a literal address.
    pub fn check_uri(self, uri: &Uri) -> Result<(), Refused> {
        if self == Self::Operator {
            return Ok(());
        }
        let host = uri.host().ok_or(Refused)?;
        let bare = host
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'))
            .unwrap_or(host);
        let literal = bare.parse::<IpAddr>().ok();
        let itself = literal.map_or_else(|| is_loopback_name(bare), |address| address.is_loopback());
        let any_port = itself && self == Self::PublicOrLoopback;
        let port_ok = any_port || uri.port_u16().is_none_or(is_allowed_port);
        if port_ok && literal.is_none_or(|address| self.allows(address)) {
            Ok(())
        } else {
            Err(Refused)
        }
    }

    /// Checks the addresses a name resolved to.
    pub fn check_addresses(self, addresses: &[SocketAddr]) -> Result<(), Refused> {
        if addresses.iter().all(|address| self.allows(address.ip())) {
            Ok(())
        } else {
            Err(Refused)
        }
    }

    /// Resolves `name` to addresses that are allowed, all of them.
    pub(crate) async fn resolve(
        self,
        resolver: &dyn Resolver,
        name: &str,
    ) -> Result<Vec<SocketAddr>, NameFault> {
        let addresses = resolver
            .resolve(name)
            .await
            .map_err(|_unresolved| NameFault::Unresolved)?;
        if addresses.is_empty() {
            return Err(NameFault::Unresolved);
        }
        self.check_addresses(&addresses)
            .map_err(|Refused| NameFault::Refused)?;
        Ok(addresses)
    }
}

/// A resolver that hands out checked addresses only.
#[derive(Clone, Debug)]
pub(crate) struct GuardedResolver {
    guard: Guard,
    names: Arc<dyn Resolver>,
}

impl GuardedResolver {
    pub(crate) fn new(guard: Guard, names: Arc<dyn Resolver>) -> Self {
        Self { guard, names }
    }
}

impl Service<Name> for GuardedResolver {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, io::Error>> + Send>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), io::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let guard = self.guard;
        let names = Arc::clone(&self.names);
        Box::pin(async move {
            // INVARIANT: the connector uses exactly the addresses returned here, without resolving again.
            let addresses = guard
                .resolve(names.as_ref(), name.as_str())
                .await
                .map_err(io::Error::other)?;
            Ok(addresses.into_iter())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Fault matrix 165
    #[test]
    fn addresses_inside_are_not_public() {
        for text in [
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "100.64.0.1",
            "100.127.255.255",
            "127.0.0.1",
            "127.9.9.9",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.1.1",
            "192.0.0.8",
            "192.0.2.1",
            "192.88.99.1",
            "198.18.0.1",
            "198.51.100.1",
            "203.0.113.1",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "::ffff:8.8.8.8",
            "::127.0.0.1",
            "64:ff9b::7f00:1",
            "64:ff9b::808:808",
            "64:ff9b:1::1",
            "100::1",
            "2001::1",
            "2001:10::1",
            "2001:db8::1",
            "2002:7f00:1::1",
            "3fff::1",
            "fc00::1",
            "fd12::1",
            "fe80::1",
            "fe81::1",
            "febf::1",
            "fec0::1",
            "ff02::1",
            "5f00::1",
        ] {
            assert!(!is_public(text.parse().unwrap()), "{text}");
        }
        for text in [
            "1.1.1.1",
            "8.8.8.8",
            "100.63.0.1",
            "172.32.0.1",
            "2606:4700::1111",
            "2001:4860::8888",
        ] {
            assert!(is_public(text.parse().unwrap()), "{text}");
        }
    }

    // Fault matrix 165
    #[test]
    fn users_name_web_ports_and_public_literals_only() {
        for text in [
            "http://127.0.0.1/",
            "http://[::1]:8080/",
            "http://[::ffff:10.0.0.1]/",
            "https://example.com:22/",
            "https://example.com:25/",
            "https://8.8.8.8:445/",
        ] {
            let uri: Uri = text.parse().unwrap();
            assert_eq!(Guard::Public.check_uri(&uri), Err(Refused), "{text}");
            assert_eq!(Guard::Operator.check_uri(&uri), Ok(()), "{text}");
        }
        for text in [
            "https://example.com/",
            "https://8.8.8.8:8443/x",
            "http://example.com:80/",
        ] {
            assert_eq!(Guard::Public.check_uri(&text.parse().unwrap()), Ok(()), "{text}");
        }
    }

    // Fault matrix 166
    #[test]
    fn one_private_address_among_public_ones_refuses_the_name() {
        let mixed = ["8.8.8.8:443".parse().unwrap(), "127.0.0.1:443".parse().unwrap()];
        assert_eq!(Guard::Public.check_addresses(&mixed), Err(Refused));
        assert_eq!(Guard::Public.check_addresses(&mixed[..1]), Ok(()));
    }

    // Fault matrix 165
    #[test]
    fn developing_opens_loopback_and_nothing_else() {
        for text in [
            "http://127.0.0.1:22/",
            "http://127.9.9.9/",
            "http://[::1]:8080/",
            "http://localhost:25/",
            "http://a.localhost.:25/",
            "https://8.8.8.8/",
        ] {
            let uri = text.parse().unwrap();
            assert_eq!(Guard::PublicOrLoopback.check_uri(&uri), Ok(()), "{text}");
        }
        for text in [
            "http://10.0.0.1/",
            "http://0.0.0.0/",
            "http://[::]/",
            "http://[::ffff:127.0.0.1]/",
            "http://169.254.169.254/",
            "https://example.com:22/",
            "https://localhost.example.com:22/",
        ] {
            let uri = text.parse().unwrap();
            assert_eq!(Guard::PublicOrLoopback.check_uri(&uri), Err(Refused), "{text}");
        }
        let mixed = ["[::1]:0".parse().unwrap(), "10.0.0.1:0".parse().unwrap()];
        assert_eq!(Guard::PublicOrLoopback.check_addresses(&mixed), Err(Refused));
        assert_eq!(Guard::PublicOrLoopback.check_addresses(&mixed[..1]), Ok(()));
        assert_eq!(Guard::Public.check_addresses(&mixed[..1]), Err(Refused));
    }
}
