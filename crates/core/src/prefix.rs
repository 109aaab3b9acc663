//! Prefixes of IP addresses.

use std::net::IpAddr;

/// A prefix of addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Prefix {
    /// Its first address.
    pub address: IpAddr,
    /// Bits that count.
    pub length: u8,
}

impl core::fmt::Display for Prefix {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}/{}", self.address, self.length)
    }
}

impl Prefix {
    /// As written: an address, or a prefix such as `10.1.0.0/16`.
    ///
    /// # Errors
    /// What is wrong with it, as the rest of "`text` ...".
    pub fn parse(text: &str) -> Result<Self, String> {
        let (address, length) = text.split_once('/').unzip();
        let address: IpAddr = address
            .unwrap_or(text)
            .parse()
            .map_err(|_| "is not an address or prefix such as \"10.1.0.0/16\"".to_owned())?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let length = match length {
            None => most,
            Some(bits) => bits
                .parse()
                .ok()
                .filter(|bits| *bits <= most)
                .ok_or_else(|| format!("has a length that is not a whole number from 0 to {most}"))?,
        };
        let first = Self::of(address, length).address;
        if first != address {
            return Err(format!("has bits set behind the prefix: did you mean \"{first}/{length}\"?"));
        }
        Ok(Self { address, length })
    }

    /// The prefix of so many bits that `address` begins with; `length` is at most that of the address.
    pub fn of(address: IpAddr, length: u8) -> Self {
        let address = match address {
            IpAddr::V4(a) => IpAddr::V4((u32::from(a) & mask(u32::MAX, 32 - u32::from(length))).into()),
            IpAddr::V6(a) => {
                let shift = 128 - u32::from(length);
                IpAddr::V6((u128::from(a) & u128::MAX.checked_shl(shift).unwrap_or(0)).into())
            }
        };
        Self { address, length }
    }

    /// Whether `address` begins with it.
    pub fn has(&self, address: IpAddr) -> bool {
        let shift = |bits: u32| bits - u32::from(self.length);
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                (u32::from(own) ^ u32::from(other)) & mask(u32::MAX, shift(32)) == 0
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                (u128::from(own) ^ u128::from(other)) & u128::MAX.checked_shl(shift(128)).unwrap_or(0) == 0
            }
            _ => false,
        }
    }
}

fn mask(all: u32, shift: u32) -> u32 {
    all.checked_shl(shift).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_in_the_prefixes_that_it_begins_with() {
        let has = |prefix: &str, address: &str| {
            Prefix::parse(prefix).expect("a prefix").has(address.parse().expect("an address"))
        };
        assert!(has("10.1.0.0/16", "10.1.255.3") && !has("10.1.0.0/16", "10.2.0.3"));
        assert!(has("10.1.0.3", "10.1.0.3") && !has("10.1.0.3", "10.1.0.2"));
        assert!(has("0.0.0.0/0", "192.0.2.1") && !has("0.0.0.0/0", "2001:db8::1"));
        assert!(has("10.1.0.0/16", "::ffff:10.1.0.9"), "an IPv4 address of a socket for both");
        assert!(has("2001:db8::/32", "2001:db8:7::1") && !has("2001:db8::/32", "2001:db9::1"));
        assert!(has("::/0", "2001:db8::1"));
    }
}
