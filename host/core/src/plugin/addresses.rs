//! Which addresses a plugin's requests may be sent to. Permissions name hosts, but connections go
//! to addresses, and the owner of a name decides what it resolves to: the host's neighbours, its
//! metadata service, the host itself.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Metadata and credential services, which grant the host's own permissions to any caller: those of
/// EC2, ECS and EKS, and those of other clouds at different addresses. No setting allows them.
const METADATA: [IpAddr; 10] = [
    // Azure (WireServer), Alibaba, Oracle; Google and Oracle over IPv6.
    IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16)),
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
    IpAddr::V4(Ipv4Addr::new(192, 0, 0, 192)),
    IpAddr::V6(Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xc1, 0, 0, 0, 0, 0xa9fe, 0xa9fe)),
    IpAddr::V4(Ipv4Addr::new(169, 254, 169, 254)),
    IpAddr::V4(Ipv4Addr::new(169, 254, 170, 2)),
    IpAddr::V4(Ipv4Addr::new(169, 254, 170, 23)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x23)),
];

const METADATA_SERVICE: &str = "a metadata service";

/// Which addresses may be connected to: public ones, and those that the operator allows besides.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AddressPolicy {
    /// Networks that are not public and may still be connected to.
    pub allowed: Vec<Network>,
}

/// A range of addresses, such as `10.1.0.0/16`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    prefix: u32,
}

/// Text that is not a range of addresses.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a network; write one such as \"10.1.0.0/16\", \"127.0.0.1\" or \"fd00::/8\"")]
pub struct InvalidNetwork(String);

/// Why no connection is made to an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{address} is {kind}")]
pub struct AddressRefusal {
    /// The address that a request would have gone to.
    pub address: IpAddr,
    /// Such as "a private address".
    pub kind: &'static str,
}

impl AddressRefusal {
    /// Whether the operator may allow it.
    pub fn can_be_allowed(&self) -> bool {
        self.kind != METADATA_SERVICE
    }
}

impl AddressPolicy {
    /// Whether an address may be connected to.
    pub fn judge(&self, address: IpAddr) -> Result<(), AddressRefusal> {
        let meant = embedded(address);
        let refused = |kind| Err(AddressRefusal { address, kind });
        if METADATA.contains(&meant) {
            return refused(METADATA_SERVICE);
        }
        match not_public(meant) {
            Some(kind) if !self.allowed.iter().any(|network| network.contains(meant)) => {
                refused(kind)
            }
            _ => Ok(()),
        }
    }
}

/// The IPv4 address inside of an IPv6 one, which is where packets to it end up; else the address
/// itself.
fn embedded(address: IpAddr) -> IpAddr {
    let IpAddr::V6(v6) = address else {
        return address;
    };
    match v6.segments() {
        // Mapped (RFC 4291), translated (RFC 2765), NAT64 (RFC 6052), 6to4 (RFC 3056).
        [0, 0, 0, 0, 0, 0xffff, high, low]
        | [0, 0, 0, 0, 0xffff, 0, high, low]
        | [0x64, 0xff9b, 0, 0, 0, 0, high, low]
        | [0x2002, high, low, ..] => v4(high, low),
        // Compatible (RFC 4291), other than `::` and `::1`.
        [0, 0, 0, 0, 0, 0, high, low] if high != 0 || low > 1 => v4(high, low),
        _ => address,
    }
}

fn v4(high: u16, low: u16) -> IpAddr {
    let ([first, second], [third, fourth]) = (high.to_be_bytes(), low.to_be_bytes());
    IpAddr::V4(Ipv4Addr::new(first, second, third, fourth))
}

/// What is special about an address that is not on the public internet.
fn not_public(address: IpAddr) -> Option<&'static str> {
    match address {
        IpAddr::V4(v4) => not_public_v4(v4),
        IpAddr::V6(v6) => not_public_v6(v6),
    }
}

fn not_public_v4(v4: Ipv4Addr) -> Option<&'static str> {
    let [a, b, c, _] = v4.octets();
    Some(match (a, b, c) {
        (0, ..) => "unspecified",
        (127, ..) => "a loopback address",
        (10, ..) | (172, 16..=31, _) | (192, 168, _) => "a private address",
        (169, 254, _) => "a link-local address",
        (100, 64..=127, _) => "a carrier's private address",
        (224..=239, ..) => "a multicast address",
        (192, 0, 0 | 2)
        | (192, 88, 99)
        | (198, 18..=19, _)
        | (198, 51, 100)
        | (203, 0, 113)
        | (240..=255, ..) => "reserved",
        _ => return None,
    })
}

fn not_public_v6(v6: Ipv6Addr) -> Option<&'static str> {
    let [a, b, ..] = v6.segments();
    Some(match a {
        _ if v6.is_unspecified() => "unspecified",
        _ if v6.is_loopback() => "a loopback address",
        0xfc00..=0xfdff => "a private address",
        0xfe80..=0xfebf => "a link-local address",
        0xfec0..=0xfeff => "a site-local address",
        0xff00..=0xffff => "a multicast address",
        // NAT64 of a local network (RFC 8215): an IPv4 address is inside, at a position that only
        // the network knows.
        0x64 if b == 0xff9b => "a translated address",
        // Teredo, benchmarks, ORCHID, documentation.
        0x2001 if b < 0x200 || b == 0xdb8 => "reserved",
        // Only 2000::/3 is given out.
        0x2000..=0x3fff if a != 0x3fff => return None,
        _ => "reserved",
    })
}

impl Network {
    /// Reads `ADDRESS/PREFIX`, or one address.
    pub fn parse(text: &str) -> Result<Self, InvalidNetwork> {
        let invalid = || InvalidNetwork(text.to_owned());
        let (address, prefix) = text
            .split_once('/')
            .map_or((text, None), |(address, prefix)| (address, Some(prefix)));
        let address: IpAddr = address.parse().map_err(|_| invalid())?;
        let bits = if address.is_ipv4() { 32 } else { 128 };
        let prefix = match prefix {
            None => bits,
            Some(prefix) => prefix
                .parse()
                .ok()
                .filter(|prefix| *prefix <= bits)
                .ok_or_else(invalid)?,
        };
        Ok(Self { address, prefix })
    }

    fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address) {
            (IpAddr::V4(ours), IpAddr::V4(theirs)) => {
                let differ = ours.to_bits() ^ theirs.to_bits();
                differ.checked_shr(32 - self.prefix).unwrap_or(0) == 0
            }
            (IpAddr::V6(ours), IpAddr::V6(theirs)) => {
                let differ = ours.to_bits() ^ theirs.to_bits();
                differ.checked_shr(128 - self.prefix).unwrap_or(0) == 0
            }
            _ => false,
        }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(allowed: &[&str], address: &str) -> Result<(), &'static str> {
        let allowed = allowed
            .iter()
            .map(|network| Network::parse(network).unwrap())
            .collect();
        AddressPolicy { allowed }
            .judge(address.parse().unwrap())
            .map_err(|refusal| refusal.kind)
    }

    #[test]
    fn only_public_addresses_are_connected_to() {
        for address in [
            "1.1.1.1",
            "93.184.216.34",
            "172.32.0.1",
            "100.128.0.1",
            "2606:4700::1111",
            "2a00:1450::1",
        ] {
            assert_eq!(judged(&[], address), Ok(()), "{address}");
        }
        for address in [
            "0.0.0.0",
            "0.1.2.3",
            "127.0.0.1",
            "127.255.255.255",
            "10.0.0.1",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.1.1",
            "169.254.1.1",
            "100.64.0.1",
            "100.127.255.255",
            "192.0.0.170",
            "192.0.2.1",
            "198.18.0.1",
            "198.51.100.1",
            "203.0.113.1",
            "224.0.0.1",
            "239.255.255.255",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "fc00::1",
            "fd12:3456::1",
            "fe80::1",
            "febf::1",
            "fec0::1",
            "ff02::1",
            "2001::1",
            "2001:db8::1",
            "3fff::1",
            "100::1",
            "64:ff9b:1::1",
            "5f00::1",
        ] {
            assert!(judged(&[], address).is_err(), "{address}");
        }
    }

    #[test]
    fn an_ipv4_address_inside_of_an_ipv6_one_is_judged_itself() {
        for form in ["::ffff:{}", "::ffff:0:{}", "64:ff9b::{}", "::{}"] {
            let of = |v4: &str| judged(&[], &form.replace("{}", v4));
            assert_eq!(of("127.0.0.1"), Err("a loopback address"), "{form}");
            assert_eq!(of("10.1.2.3"), Err("a private address"), "{form}");
            assert_eq!(of("169.254.169.254"), Err("a metadata service"), "{form}");
            assert_eq!(of("1.1.1.1"), Ok(()), "{form}");
        }
        assert_eq!(judged(&[], "2002:7f00:1::"), Err("a loopback address"));
        assert_eq!(judged(&[], "2002:a9fe:a9fe::1"), Err("a metadata service"));
    }

    #[test]
    fn what_the_operator_allows_is_connected_to_except_for_metadata() {
        let all = ["0.0.0.0/0", "::/0"];
        assert_eq!(judged(&["10.1.0.0/16"], "10.1.255.255"), Ok(()));
        assert_eq!(
            judged(&["10.1.0.0/16"], "10.2.0.0"),
            Err("a private address")
        );
        assert_eq!(judged(&["127.0.0.1"], "127.0.0.1"), Ok(()));
        assert_eq!(
            judged(&["127.0.0.1"], "127.0.0.2"),
            Err("a loopback address")
        );
        assert_eq!(
            judged(&["127.0.0.1"], "::ffff:127.0.0.1"),
            Ok(()),
            "packets end up there"
        );
        assert_eq!(judged(&["fd00::/8"], "fd12::1"), Ok(()));
        assert_eq!(judged(&["fd00::/8"], "fc00::1"), Err("a private address"));
        assert_eq!(judged(&all, "192.168.0.1"), Ok(()));
        for metadata in [
            "169.254.169.254",
            "::ffff:169.254.169.254",
            "169.254.170.2",
            "fd00:ec2::254",
            "fd00:ec2::23",
        ]
        .into_iter()
        .chain([
            "168.63.129.16",
            "100.100.100.200",
            "192.0.0.192",
            "fd20:ce::254",
            "fd00:c1::a9fe:a9fe",
        ]) {
            assert_eq!(
                judged(&all, metadata),
                Err("a metadata service"),
                "{metadata}"
            );
        }
    }

    #[test]
    fn text_that_is_no_network_is_refused() {
        for text in [
            "",
            "10.1",
            "10.0.0.0/33",
            "::/129",
            "10.0.0.0/",
            "10.0.0.0/-1",
            "host",
        ] {
            assert!(Network::parse(text).is_err(), "{text}");
        }
        assert_eq!(
            Network::parse("10.1.0.0/16").unwrap().to_string(),
            "10.1.0.0/16"
        );
    }

    #[test]
    fn a_refusal_says_what_is_special_about_the_address() {
        for (address, kind) in [
            ("::", "unspecified"),
            ("::1", "a loopback address"),
            ("::2", "unspecified"),
            ("fc00::1", "a private address"),
            ("fe80::1", "a link-local address"),
            ("fec0::1", "a site-local address"),
            ("ff02::1", "a multicast address"),
            ("64:ff9b:1::1", "a translated address"),
            ("64:1::1", "reserved"),
            ("2001:1ff::1", "reserved"),
            ("2001:db8::1", "reserved"),
            ("3fff::1", "reserved"),
        ] {
            assert_eq!(judged(&[], address), Err(kind), "{address}");
        }
        for public in ["2001:200::1", "2001:db7::1", "2001:db9::1", "3ffe::1"] {
            assert_eq!(judged(&[], public), Ok(()), "{public}");
        }
    }
}
