//! Names of hosts, users and programs that no one owns (RFC 2606).

use crate::make::rng::Rng;

/// What clients say they are.
pub const AGENTS: [&str; 4] = [
    "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0",
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/126.0.0.0 Safari/537.36",
    "curl/8.5.0",
    "python-requests/2.32.3",
];

/// A word of two to four syllables.
pub fn word(rng: &mut Rng) -> String {
    const SYLLABLES: [&str; 16] = [
        "ka", "lo", "mi", "ra", "ten", "vo", "sul", "ner", "pa", "dri", "fen", "go", "hal", "ju",
        "bex", "zi",
    ];
    (0..rng.between(2, 4))
        .map(|_| *rng.pick(&SYLLABLES))
        .collect()
}

/// A host name.
pub fn host(rng: &mut Rng) -> String {
    const PREFIXES: [&str; 5] = ["www", "cdn", "api", "mail", "img"];
    let prefix = *rng.pick(&PREFIXES);
    format!("{prefix}.{}.example", word(rng))
}
