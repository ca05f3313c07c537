//! EPS AKA with Milenage (TS 33.401, TS 35.206): vectors of the home network, the answer of the USIM.

use oxirush_security::milenage::{Amf, K, Milenage, Opc, Sqn};
use oxirush_security::nas_eps::derive_kasme;
use oxirush_security::{Autn, Plmn, Rand};

pub use oxirush_security::nas_eps::KAsme as Kasme;

/// A subscriber's permanent key, as USIM and home network have it.
pub struct Subscriber(Milenage);

/// A challenge and what answers it.
pub struct Vector {
    /// To the UE.
    pub rand: [u8; 16],
    /// To the UE.
    pub autn: [u8; 16],
    /// What the UE must answer.
    pub xres: Vec<u8>,
    /// Root of the keys.
    pub kasme: Kasme,
}

/// What a USIM makes of a challenge.
pub enum Answer {
    /// The network has proved itself.
    Accepted {
        /// Proof of the UE.
        res: Vec<u8>,
        /// Root of the keys.
        kasme: Kasme,
        /// Sequence number of the challenge.
        sqn: u64,
    },
    /// Another key made this AUTN.
    WrongMac,
    /// The sequence number was used before: AUTS for the home network.
    OldSqn([u8; 14]),
}

/// Separation bit, which EPS asks for (TS 33.102 annex H).
const AMF: [u8; 2] = [0x80, 0x00];

impl Subscriber {
    /// K and OPc.
    #[must_use]
    pub fn new(k: &[u8; 16], opc: &[u8; 16]) -> Self {
        Self(Milenage::new(&K::new(k), &Opc::new(opc)))
    }

    /// The vector of a challenge; `sqn` has 48 bits, more are cut off.
    #[must_use]
    pub fn vector(&self, rand: [u8; 16], sqn: u64, network: Network) -> Vector {
        let (random, sqn) = (Rand::new(&rand), sequence(sqn));
        let vector = self.0.authentication_vector(&random, &sqn, &Amf::new(&AMF));
        Vector {
            rand,
            autn: *vector.autn().as_octets(),
            xres: vector.xres().as_octets().to_vec(),
            kasme: derive_kasme(vector.ck(), vector.ik(), network.0, vector.autn()),
        }
    }

    /// The USIM's answer; a sequence number must be higher than the `highest` accepted so far.
    #[must_use]
    pub fn answer(
        &self,
        rand: &[u8; 16],
        autn: &[u8; 16],
        highest: u64,
        network: Network,
    ) -> Answer {
        let (rand, autn) = (Rand::new(rand), Autn::new(autn));
        let Ok(usim) = self.0.check_autn(&rand, &autn) else {
            return Answer::WrongMac;
        };
        let sqn = usim
            .sqn()
            .as_octets()
            .iter()
            .fold(0, |sum, &octet| sum << 8 | u64::from(octet));
        if sqn <= highest {
            let auts = self.0.auts(&rand, &sequence(highest));
            return Answer::OldSqn(*auts.as_octets());
        }
        Answer::Accepted {
            res: usim.res().as_octets().to_vec(),
            kasme: derive_kasme(usim.ck(), usim.ik(), network.0, &autn),
            sqn,
        }
    }

    /// The highest sequence number of a USIM, from its AUTS; `None` if another key made it.
    #[must_use]
    pub fn resynchronised(&self, rand: &[u8; 16], auts: &[u8; 14]) -> Option<u64> {
        let auts = oxirush_security::milenage::Auts::new(auts);
        let sqn = self.0.verify_auts(&Rand::new(rand), &auts).ok()?;
        Some(
            sqn.as_octets()
                .iter()
                .fold(0, |sum, &octet| sum << 8 | u64::from(octet)),
        )
    }
}

fn sequence(sqn: u64) -> Sqn {
    let octets = sqn.to_be_bytes();
    Sqn::new(&[
        octets[2], octets[3], octets[4], octets[5], octets[6], octets[7],
    ])
}

/// MCC and MNC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network(pub(crate) Plmn);

impl Network {
    /// `None` unless these are 3 and 2 or 3 digits.
    #[must_use]
    pub fn new(mcc: &str, mnc: &str) -> Option<Self> {
        Plmn::new(mcc, mnc).ok().map(Self)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn octets<const N: usize>(hex: &str) -> [u8; N] {
        std::array::from_fn(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap())
    }

    /// Test set 1 of TS 35.208: f1 to f5.
    #[test]
    fn milenage_agrees_with_ts_35_208() {
        let k = octets("465b5ce8b199b49faa5f0a2ee238a6bc");
        let opc = octets("cd63cb71954a9f4e48a5994e37a02baf");
        let rand: [u8; 16] = octets("23553cbe9637a89d218ae64dae47bf35");
        let milenage = Milenage::new(&K::new(&k), &Opc::new(&opc));
        let (sqn, amf) = (sequence(0xff9b_b4d0_b607), Amf::new(&[0xb9, 0xb9]));
        let vector = milenage.authentication_vector(&Rand::new(&rand), &sqn, &amf);
        // SQN xor AK (f5 = aa689c648370), AMF, MAC-A (f1).
        let autn: [u8; 16] = octets("55f328b43577b9b94a9ffac354dfafb3");
        assert_eq!(vector.autn().as_octets(), &autn);
        assert_eq!(vector.xres().as_octets(), &octets::<8>("a54211d5e3ba50bf"));
        assert_eq!(
            vector.ck().as_octets(),
            &octets::<16>("b40ba9a3c58b2a05bbf0d987b21bf8cb")
        );
        assert_eq!(
            vector.ik().as_octets(),
            &octets::<16>("f769bcd751044604127672711c6d3441")
        );
    }

    #[test]
    fn a_challenge_is_taken_once_and_only_with_the_right_key() {
        let network = Network::new("001", "01").unwrap();
        let (home, other) = (
            Subscriber::new(&[1; 16], &[2; 16]),
            Subscriber::new(&[1; 16], &[3; 16]),
        );
        let vector = home.vector([7; 16], 40, network);
        let Answer::Accepted { res, kasme, sqn } =
            home.answer(&vector.rand, &vector.autn, 39, network)
        else {
            panic!("refused");
        };
        assert_eq!((res, sqn), (vector.xres, 40));
        assert_eq!(kasme.as_octets(), vector.kasme.as_octets());
        assert!(matches!(
            other.answer(&vector.rand, &vector.autn, 0, network),
            Answer::WrongMac
        ));
        let Answer::OldSqn(auts) = home.answer(&vector.rand, &vector.autn, 40, network) else {
            panic!("an old sequence number was taken");
        };
        assert_eq!(home.resynchronised(&vector.rand, &auts), Some(40));
        assert_eq!(other.resynchronised(&vector.rand, &auts), None);
    }
}
