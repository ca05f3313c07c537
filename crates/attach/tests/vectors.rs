//! Our octets beside those of a second implementation, and EPS AKA beside the test data of 3GPP.
//!
//! The hexadecimal vectors of S1AP and NAS are output of pycrate 0.8.1 (LGPL-2.1, P1 Security): a script gave it the values that
//! stand beside them and printed `to_aper()` and `to_bytes()`. pycrate was run once, in an environment of its own; it is neither
//! linked nor needed by a build or a test. K, OPc, RAND, SQN and RES are the 19 sets of TS 35.208, 4.3 that differ; AUTN (for AMF
//! 8000) and KASME (serving network 001-01, TS 33.401 A.2) were computed from them by AES and HMAC-SHA-256 of Python's
//! cryptography 48, after f1 to f5* of the standard had come out.

#![allow(clippy::unwrap_used, missing_docs)]

use nodrop_attach::wire::aka::{Answer, Network, Subscriber};
use nodrop_attach::wire::nas::{self, ALL, Capability, Nas, Way};
use nodrop_attach::wire::s1ap::{self, Cell, Ids, S1};

fn octets(hex: &str) -> Vec<u8> {
    let pairs = (0..hex.len() / 2).map(|at| &hex[2 * at..2 * at + 2]);
    pairs
        .map(|pair| u8::from_str_radix(pair, 16).unwrap())
        .collect()
}

const CAPABILITY: Capability = Capability {
    eea: 0xf0,
    eia: 0xf0,
};

/// Whether we would say the same octets, or say it with other values of fields that we do not read.
#[derive(PartialEq)]
enum Said {
    Alike,
    Otherwise,
}

#[test]
fn s1ap_agrees_with_pycrate() {
    let ids = Ids { mme: 7, enb: 4711 };
    let cell = Cell {
        mcc: "001".into(),
        mnc: "01".into(),
        tac: 1,
        enb_id: 1,
    };
    for (said, message, hex) in [
        // SetupRequest
        (
            Said::Alike,
            S1::SetupRequest,
            "0011002b000004003b00080000f11000000010003c400802806e6f64726f70004000070000004000f1100089400140",
        ),
        // SetupResponse
        (
            Said::Otherwise,
            S1::SetupResponse,
            "20110020000003003d400501006d6d650069000b000000f11000000001000100574001ff",
        ),
        // SetupFailure
        (
            Said::Alike,
            S1::SetupFailure { wait_s: Some(20) },
            "4011000d00000200024001400041400140",
        ),
        // SetupFailureNoWait
        (
            Said::Otherwise,
            S1::SetupFailure { wait_s: None },
            "401100080000010002400145",
        ),
        // InitialUe
        (
            Said::Alike,
            S1::InitialUe {
                enb: 4711,
                nas: vec![0x07, 0x55, 0x01],
            },
            "000c402d00000500080003401267001a000403075501004300060000f1100001006440080000f110000010100086400130",
        ),
        // DownlinkNas
        (
            Said::Alike,
            S1::DownlinkNas {
                ids,
                nas: vec![0x07, 0x55, 0x01],
            },
            "000b401800000300000002000700080003401267001a000403075501",
        ),
        // UplinkNas
        (
            Said::Alike,
            S1::UplinkNas {
                ids,
                nas: vec![0x07, 0x55, 0x01],
            },
            "000d402e00000500000002000700080003401267001a000403075501006440080000f11000001010004340060000f1100001",
        ),
        // ContextSetupRequest
        (
            Said::Alike,
            S1::ContextSetupRequest {
                ids,
                nas: Some(vec![0x07, 0x55, 0x01]),
            },
            "00090066000006000000020007000800034012670042000a1805f5e1006002faf080001800170000340012450009200f800a0000010000000703075501006b00051c000e0000004900200000000000000000000000000000000000000000000000000000000000000000",
        ),
        // ContextSetupRequestNoNas
        (
            Said::Alike,
            S1::ContextSetupRequest { ids, nas: None },
            "00090062000006000000020007000800034012670042000a1805f5e1006002faf08000180013000034000e050009200f800a00000100000007006b00051c000e0000004900200000000000000000000000000000000000000000000000000000000000000000",
        ),
        // ContextSetupRequestTwo
        (
            Said::Otherwise,
            S1::ContextSetupRequest {
                ids,
                nas: Some(vec![0x07, 0x55, 0x01]),
            },
            "00090078000006000000020007000800034012670042000a1805f5e1006002faf08000180029010034000e050009200f800a0000010000000700340012460009200f800a0000010000000703075501006b00051c000e0000004900200000000000000000000000000000000000000000000000000000000000000000",
        ),
        // ContextSetupResponse
        (
            Said::Alike,
            S1::ContextSetupResponse { ids },
            "20090023000003000040020007000840034012670033400f000032400a0a1f0a00000200001267",
        ),
        // ContextSetupFailure
        (
            Said::Alike,
            S1::ContextSetupFailure { ids },
            "4009001600000300004002000700084003401267000240020000",
        ),
        // ReleaseCommandPair
        (
            Said::Alike,
            S1::ReleaseCommand {
                mme: 7,
                enb: Some(4711),
            },
            "001700110000020063000500074012670002400124",
        ),
        // ReleaseCommandMme
        (
            Said::Alike,
            S1::ReleaseCommand { mme: 7, enb: None },
            "0017000e0000020063000240070002400124",
        ),
        // ReleaseComplete
        (
            Said::Alike,
            S1::ReleaseComplete { ids },
            "2017001000000200004002000700084003401267",
        ),
        // ErrorIndication
        (
            Said::Otherwise,
            S1::ErrorIndication {
                mme: Some(7),
                enb: Some(4711),
            },
            "000f4016000003000040020007000840034012670002400201a0",
        ),
        // Reset
        (Said::Alike, S1::Reset, "000e000d0000020002400143005c000100"),
        // ResetAcknowledge
        (Said::Alike, S1::ResetAcknowledge, "200e0003000000"),
    ] {
        let theirs = octets(hex);
        assert_eq!(s1ap::decode(&theirs).unwrap(), message);
        if said == Said::Alike {
            assert_eq!(
                s1ap::encode(&message, &cell).unwrap(),
                theirs,
                "{message:?}"
            );
        }
    }
}

#[test]
fn nas_agrees_with_pycrate() {
    let imsi = || "001010000000007".to_owned();
    let octet = |at: usize| u8::try_from(at).unwrap();
    for (said, way, message, hex) in [
        (
            Said::Alike,
            Way::Up,
            Nas::AttachRequest {
                imsi: imsi(),
                capability: CAPABILITY,
            },
            "07417108091010000000007002f0f000040201d011",
        ),
        (
            Said::Alike,
            Way::Down,
            Nas::AuthenticationRequest {
                rand: std::array::from_fn(octet),
                autn: std::array::from_fn(|at| octet(at + 16)),
            },
            "075200000102030405060708090a0b0c0d0e0f10101112131415161718191a1b1c1d1e1f",
        ),
        (
            Said::Alike,
            Way::Up,
            Nas::AuthenticationResponse {
                res: (1..9).collect(),
            },
            "0753080102030405060708",
        ),
        (
            Said::Alike,
            Way::Up,
            Nas::AuthenticationFailure {
                cause: 21,
                auts: Some(std::array::from_fn(octet)),
            },
            "075c15300e000102030405060708090a0b0c0d",
        ),
        (
            Said::Alike,
            Way::Up,
            Nas::AuthenticationFailure {
                cause: 20,
                auts: None,
            },
            "075c14",
        ),
        (Said::Alike, Way::Down, Nas::AuthenticationReject, "0754"),
        (
            Said::Alike,
            Way::Down,
            Nas::SecurityModeCommand {
                eea: 1,
                eia: 2,
                replayed: CAPABILITY,
                imeisv: true,
                hash: None,
            },
            "075d120002f0f0c1",
        ),
        (
            Said::Otherwise,
            Way::Down,
            Nas::SecurityModeCommand {
                eea: 2,
                eia: 1,
                replayed: CAPABILITY,
                imeisv: true,
                hash: Some([1, 2, 3, 4, 5, 6, 7, 8]),
            },
            "075d210004f0f0c0c0c14f080102030405060708",
        ),
        (
            Said::Alike,
            Way::Down,
            Nas::SecurityModeCommand {
                eea: 2,
                eia: 2,
                replayed: ALL,
                imeisv: true,
                hash: Some([1, 2, 3, 4, 5, 6, 7, 8]),
            },
            "075d220002f070c14f080102030405060708",
        ),
        (
            Said::Alike,
            Way::Up,
            Nas::SecurityModeComplete {
                imeisv: true,
                request: None,
            },
            "075e23093335940096783391f0",
        ),
        (
            Said::Alike,
            Way::Up,
            Nas::SecurityModeComplete {
                imeisv: false,
                request: Some(octets("07417108091010000000007002f0f000040201d011")),
            },
            "075e79001507417108091010000000007002f0f000040201d011",
        ),
        (
            Said::Alike,
            Way::Up,
            Nas::SecurityModeReject { cause: 23 },
            "075f17",
        ),
        (Said::Alike, Way::Down, Nas::IdentityRequest, "075501"),
        (
            Said::Alike,
            Way::Up,
            Nas::IdentityResponse { imsi: imsi() },
            "0756080910100000000070",
        ),
        (
            Said::Otherwise,
            Way::Down,
            Nas::AttachAccept { bearer: 5, pti: 1 },
            "07420121060000f110000100155201c101090908696e7465726e657405010a000001500bf600f110000101c00000015312640101",
        ),
        (Said::Alike, Way::Up, Nas::AttachComplete, "074300035200c2"),
        (
            Said::Alike,
            Way::Down,
            Nas::AttachReject { cause: 22 },
            "074416",
        ),
        (
            Said::Otherwise,
            Way::Down,
            Nas::AttachReject { cause: 22 },
            "0744165f0121",
        ),
        (
            Said::Otherwise,
            Way::Down,
            Nas::ServiceReject { cause: 9 },
            "074e09",
        ),
        (
            Said::Alike,
            Way::Up,
            Nas::DetachRequest,
            "074509080910100000000000",
        ),
        (Said::Alike, Way::Down, Nas::EmmInformation, "0761"),
        (
            Said::Alike,
            Way::Down,
            Nas::EsmInformationRequest { pti: 1 },
            "0201d9",
        ),
        (
            Said::Alike,
            Way::Up,
            Nas::EsmInformationResponse { pti: 1 },
            "0201da",
        ),
        (Said::Otherwise, Way::Down, Nas::Other, "076061"),
    ] {
        let theirs = octets(hex);
        assert_eq!(nas::decode(&theirs, way).unwrap(), message);
        if said == Said::Alike {
            assert_eq!(nas::encode(&message).unwrap(), theirs, "{message:?}");
        }
    }
}

/// The first hash is of an operator's network, as the crate of the codec has captured it; the second by HMAC-SHA-256 of Python's
/// standard library, with a key of zeros (TS 33.401, I.2).
#[test]
fn hash_mme_agrees_with_a_network() {
    for (request, hash) in [
        (
            "07410108991007000020160605e0e000000000250243d011d1271d8080211001000010810600000000830600000000000a00000d00001000c0d0c1",
            "b1e1115a6c47a750",
        ),
        (
            "07417108091010000000007002f0f000040201d011",
            "66e04235cd0448a9",
        ),
    ] {
        assert_eq!(nas::hash(&octets(request))[..], octets(hash));
    }
}

/// K, OPc, RAND, SQN, RES, AUTN, KASME.
const TS_35_208: &str = "\
465b5ce8b199b49faa5f0a2ee238a6bc cd63cb71954a9f4e48a5994e37a02baf 23553cbe9637a89d218ae64dae47bf35 ff9bb4d0b607 a54211d5e3ba50bf 55f328b43577800059bcea576837152b 48579af8781c742d5120e6ed8ccac13193f38c53ab7aa69396f49ca6e1b0562d
fec86ba6eb707ed08905757b1bb44b8f 1006020f0a478bf6b699f15c062e42b3 9f7c8d021accf4db213ccff0c7f71a6a 9d0277595ffc 8011c48c0c214ed2 ae4a3a9b4c978000c9a6c71027baae2b 0a9391420483ebbb5035a995e57bea5a626626538d2fcc2b6755c879055201b6
9e5944aea94b81165c82fbf9f32db751 a64a507ae1a2a98bb88eb4210135dc87 ce83dbc54ac0274a157c17f80d017bd6 0b604a81eca8 f365cd683cd92e96 fbd98a0b3c868000e29c242ed656779b 135a598fb7190227b148e338692b8739aa9dc6d76c4fb7dea1dd18492c627523
4ab1deb05ca6ceb051fc98e77d026a84 dcf07cbd51855290b92a07a9891e523e 74b0cd6031a1c8339b2b6ce2b8c4a186 e880a1b580b6 5860fc1bce351e7e d961bbd511ae8000acfed5b95c7f0ac7 e5113800fbb4a6dd0dcc6517c56ccbe2c08ab88b1abc1acbf92c31d1cfd72aa4
6c38a116ac280c454f59332ee35c8c4f 3803ef5363b947c6aaa225e58fae3934 ee6466bc96202c5a557abbeff8babf63 414b98222181 16c8233f05a0ac28 04fb6eb891ed80005f91fff4d00996c3 ffde21c2b496693e1e00870d408072261230cc85f8cfcd95f126911bf1bf52ec
2d609d4db0ac5bf0d2c0de267014de0d c35a0ab0bcbfc9252caff15f24efbde0 194aa756013896b74b4a2a3b0af4539e 6bf69438c2e4 8c25a16cd918a1df 1592c1cb8e1780001eb2aea1698c4fdd 17afe907604a42a250cd561e0992d8959ce456a6f6407eeaf5729c3d2b6d8a9f
a530a7fe428fad1082c45eddfce13884 27953e49bc8af6dcc6e730eb80286be3 3a4c2b3245c50eb5c71d08639395764d f63f5d768784 a63241e1ffc3e5ab 7e2631311feb8000dde446034edfa0de 57de633aec1fcdc459e05f11e089c441e61d51d643b4424cc666a0240742cdde
d9151cf04896e25830bf2e08267b8360 c4c93effe8a08138c203d4c27ce4e3d9 f761e5e93d603feb730e27556cb8a2ca 47ee0199820a 4a90b2171ac83a76 c54ef4b1f87b800004f0213350ea5b1e af0d9eedc914db516f91c64051268ef1dc724594643f5c1b203e1c9585639322
a0e2971b6822e8d354a18cc235624ecb 82a26f22bba9e9488f949a10d98e9cc4 08eff828b13fdb562722c65c7f30a9b2 db5c066481e0 4bc2212d8624910a 79a45ece1fbd800002cbdf04e8ea43f7 73ae0834ad47429b5afe84e9c3b0651a1a78a5c2241ca862002a3ef3a5be3c9b
0da6f7ba86d5eac8a19cf563ac58642d 0db1071f8767562ca43a0a64c41e8d08 679ac4dbacd7d233ff9d6806f4149ce3 6e2331d692ad 6fc30fee6d123523 2270abf07357800015efc75afff94f26 e173559dcf3ef4db8eccff5c5941267b1f55eeaf5b8c028d2ab35d2002f53eb2
77b45843c88e58c10d202684515ed430 d483afae562409a326b5bb0b20c4d762 4c47eb3076dc55fe5106cb2034b8cd78 fe1a8731005d aefa357beac2a87a cee5a2fcadab8000b1cd61c9aa153f4f 2a50648d4fa48cabffb2c540121862f8fc7b4e3c7b40e1868a2c53d4a033b1e4
729b17729270dd87ccdf1bfe29b4e9bb 228c2f2f06ac3268a9e616ee16db4ba1 311c4c929744d675b720f3b7e9b1cbd0 c85c4cf65916 98dbbd099b3b408d 9bdc9dae96f580005cec86fe884032db 6ffe1dbaaeb7b30bf0408ec6a4f2e168db9b190ff4425b94225b50d092bccfba
d32dd23e89dc662354ca12eb79dd32fa d22a4b4180a5325708a5ff70d9f67ec7 cf7d0ab1d94306950bf12018fbd46887 484107e56a43 af4a411e1139f2c2 693bf37718ee8000e9299c9aab477953 1165c43dc78b29523bb2c6467f1b06fc987fb0c548cd604dbd2c6ee1876e4fa2
af7c65e1927221de591187a2c5987a53 a4cf5c8155c08a7eff418e5443b98e55 1f0f8578464fd59b64bed2d09436b57a 3d627b01418d 7bffa5c2f41fbc05 be1dacb60594800044324ce001bfd5aa 8a62bbd1a90f5e2c67eab75fd660c0afea40e57b433186223462e22c6f5dd5dd
5bd7ecd3d3127a41d12539bed4e7cf71 76089d3c0ff3efdc6e36721d4fceb747 59b75f14251c75031d0bcbac1c2c04c7 a298ae8929dc 7e3f44c7591f6f45 f979ba1c7b81800066475bf5a021b0b1 a5bbe91ad733b50b2f29ecb648cca066ad65f6a45048b4bc3dba657a9a29fc03
6cd1c6ceb1e01e14f1b82316a90b7f3d a219dc37f1dc7d66738b5843c799f206 f69b78f300a0568bce9f0cb93c4be4c9 b4fce5feb059 70f6bdb9ad21525f a8bc6f7b3b678000d17b8dd2f847d456 dc49eb3ff54120a2dbf514a35abb53d0f1ed014f7b35499150eeca6c441f6b95
b73a90cbcf3afb622dba83c58a8415df df0c67868fa25f748b7044c6e7c245b8 b120f1c1a0102a2f507dd543de68281f f1e8a523a36d 479dd25c20792d63 5f150f7e7ef48000c25e217b8e7df367 bdf98aff195ad9a4cc5e8cb5f6af59a912ceb1e6a6080402eb0b850e6b255815
5122250214c33e723a5dd523fc145fc0 981d464c7c52eb6e5036234984ad0bcf 81e92b6c0ee0e12ebceba8d92a99dfa5 16f3b3f70fc2 28d7b0f2a2ec3de5 bb52e91c747a80009a537d5e25e2ef65 04a2d7ce0dd489817c7f6a2064f3b48bd1416c1506f98e2a4549949964b340e5
90dca4eda45b53cf0f12d7c9c3bc6a89 cb9cccc4b9258e6dca4760379fb82581 9fddc72092c6ad036b6e464789315b78 20f813bd4141 a95100e2760952cd a337c6f0f852800069c46672cfcef2d0 c49dbe2518e890c09990f6b1b3aff700d229d684077188eed1b3d8b422ea4fcf";

#[test]
fn aka_agrees_with_ts_35_208() {
    let network = Network::new("001", "01").unwrap();
    let mut sets = 0;
    for line in TS_35_208.lines() {
        let values: Vec<Vec<u8>> = line.split(' ').map(octets).collect();
        let [k, opc, rand, sqn, res, autn, kasme] = &values[..] else {
            panic!("{line}");
        };
        let key = |octets: &[u8]| <[u8; 16]>::try_from(octets).unwrap();
        let sqn = sqn
            .iter()
            .fold(0, |sum, &octet| sum << 8 | u64::from(octet));
        let subscriber = Subscriber::new(&key(k), &key(opc));
        let vector = subscriber.vector(key(rand), sqn, network);
        assert_eq!((&vector.xres, vector.autn), (res, key(autn)), "{line}");
        assert_eq!(vector.kasme.as_octets()[..], kasme[..], "{line}");
        let answer = subscriber.answer(&key(rand), &key(autn), sqn - 1, network);
        let Answer::Accepted {
            res: ours,
            kasme: root,
            sqn: read,
        } = answer
        else {
            panic!("the USIM refused {line}");
        };
        assert_eq!((&ours, read), (res, sqn));
        assert_eq!(root.as_octets()[..], kasme[..]);
        sets += 1;
    }
    assert_eq!(sets, 19);
}
