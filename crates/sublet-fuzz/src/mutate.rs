//! Inputs made of others, in an order that a number decides.

/// Inputs do not grow beyond this.
const INPUT_BYTES_MAX: usize = 64 << 10;
/// What parsers look for.
const WORDS: &[&str] = &[
    "null",
    "true",
    "-1",
    "0",
    "9223372036854775808",
    "-9223372036854775809",
    "1e400",
    "1e-400",
    "0x",
    "\u{0}",
    "\u{feff}",
    "é",
    "\u{1F600}",
    "\\u0000",
    "\\ud800",
    "{",
    "}",
    "[",
    "]",
    "\"",
    ":",
    ",",
    "~1",
    "~0",
    "-",
    "..",
    "../",
    "%2F",
    "%00",
    "%",
    "&",
    "=",
    ";",
    "!",
    "!=",
    "in (",
    "notin (",
    ")",
    "*&a",
    "&a ",
    "<<: *a",
    "---\n",
    "? ",
    "|",
    ">",
    "!!binary ",
    "$patch",
    "$retainKeys",
    "$setElementOrder/",
    "$deleteFromPrimitiveList/",
    "x-kubernetes-",
    "k:{\"name\":\"a\"}",
    "f:metadata",
    "v:1",
    "i:0",
    "self",
    "has(",
    ".all(x, ",
    ".map(x, ",
    ".matches(",
    "size(",
    "duration('",
    "timestamp('",
    " ? ",
    " : ",
    "Ki",
    "Mi",
    "E",
    "e",
    "m",
    "n",
    "u",
    "application/json",
    "application/vnd.kubernetes.protobuf",
    ";as=Table;v=v1;g=meta.k8s.io",
    "q=0",
    "gzip",
    "k8s\u{0}",
    "metadata",
    "namespace",
    "name",
    "labels",
    "managedFields",
    "finalizers",
    "resourceVersion",
    "status",
    "spec",
    "kind",
    "apiVersion",
];

/// Makes inputs. Equal seeds make equal inputs.
pub struct Mutator {
    state: u64,
    pool: Vec<Vec<u8>>,
}

impl Mutator {
    pub fn new(seed: u64, seeds: &[&[u8]]) -> Self {
        let pool = if seeds.is_empty() { vec![Vec::new()] } else { seeds.iter().map(|s| s.to_vec()).collect() };
        Self { state: seed.wrapping_mul(2).wrapping_add(0x9e37_79b9_7f4a_7c15), pool }
    }

    fn number(&mut self, below: usize) -> usize {
        // xorshift64*
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        (self.state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % below.max(1)
    }

    /// The next input.
    pub fn next_input(&mut self) -> Vec<u8> {
        let from = self.number(self.pool.len());
        let mut input = self.pool[from].clone();
        for _ in 0..=self.number(6) {
            self.change(&mut input);
            input.truncate(INPUT_BYTES_MAX);
        }
        input
    }

    fn change(&mut self, input: &mut Vec<u8>) {
        let at = self.number(input.len() + 1);
        let end = at + self.number(input.len() - at + 1).min(64);
        match self.number(9) {
            0 if at < input.len() => input[at] ^= 1 << self.number(8),
            1 if at < input.len() => input[at] = self.number(256) as u8,
            2 => drop(input.drain(at..end)),
            3 => self.insert(input, at, 1),
            4 => {
                let part = input[at..end].to_vec();
                input.splice(at..at, part);
            }
            // Much of the same is what limits are for.
            5 if self.number(20) == 0 => {
                let part = input[at..end].to_vec();
                let times = 1 << self.number(10);
                input.splice(at..at, part.repeat(times));
            }
            6 if self.number(20) == 0 => {
                let times = 1 << self.number(10);
                self.insert(input, at, times);
            }
            7 => {
                let other = self.number(self.pool.len());
                let other = self.pool[other].clone();
                let from = self.number(other.len() + 1);
                let to = from + self.number(other.len() - from + 1);
                input.splice(at..end, other[from..to].iter().copied());
            }
            _ => {
                let word = WORDS[self.number(WORDS.len())];
                input.splice(at..end, word.bytes());
            }
        }
    }

    fn insert(&mut self, input: &mut Vec<u8>, at: usize, times: usize) {
        let word = WORDS[self.number(WORDS.len())].repeat(times);
        input.splice(at..at, word.into_bytes());
    }
}
